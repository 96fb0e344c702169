// Measures ways that need their own bank and worker, and their own database on the product's server.
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { choosePort } from '../../dist/sandbox/stack/ports.js';
import { connectDatabase } from '../../dist/src/db/client.js';
import { check, timeWay } from './measure.mjs';
import { startScript, watchProcesses } from './processes.mjs';

/**
 * Measures a way whose worker receives the request at POST /payouts.
 *
 * @param {{ name: string, databaseUrl: string, env: Record<string, string>,
 *   pids: Record<string, number>, setUp: (database: object) => Promise<object>,
 *   bodyOf: (customer: object, count: number) => string }} way
 *   `pids`: the processes of the product's stack that it uses; `setUp` fills its database and returns its
 *   customer
 */
export async function measureOwnParts(bench, way, { payouts, warmup }) {
  const { name, databaseUrl: url, env, pids, setUp, bodyOf } = way;
  const database = connectDatabase({ url, poolSize: 2, applicationName: 'bench' });
  const parts = [];
  try {
    const customer = await setUp(database);
    const journal = join(bench.directory, `bank-journal-${name}.jsonl`);
    const workerUrl = await startOwnParts(bench, parts, { name, journal, env });
    const own = Object.fromEntries(parts.map((part) => [part.name, part.pid]));
    let processes;
    const prepare = async (count) => {
      const body = bodyOf(customer, count);
      processes = watchProcesses({ ...pids, ...own, sink: bench.sinkPid });
      return () => send(workerUrl, body);
    };
    const timed = await timeWay({ bench, database, customer, warmup, payouts, prepare });
    const peaksMb = processes.peaksMb();
    const processorMs = processes.msAPayout(payouts);
    const checked = await check({ bench, database, customer, journal, payouts: payouts + warmup });
    return { ...timed, peaksMb, processorMs, ...checked };
  } finally {
    for (const part of parts.toReversed()) await part.stop();
    await database.end({ timeout: 5 });
  }
}

async function send(url, body) {
  const response = await fetch(`${url}/payouts`, { method: 'POST', body });
  if (response.status !== 202) throw new Error(`The worker: ${await response.text()}`);
  return {};
}

/**
 * Starts a bank and a worker that call each other, because the product's bank calls back the product's API.
 * Pushes both to `parts`, to be stopped in reverse order. Returns the worker's URL.
 */
async function startOwnParts({ directory }, parts, { name, journal, env }) {
  // Otherwise the bank would report events of an earlier run, which the new databases do not know.
  await rm(journal, { force: true });
  const port = String(await choosePort(0, `--${name}-port`));
  const url = `http://127.0.0.1:${port}`;
  const secret = () => randomBytes(24).toString('base64url');
  const [token, callbackSecret] = [secret(), secret()];
  const bank = await startScript({
    name: `${name}-bank`,
    script: '../../dist/sandbox/bank/main.js',
    directory,
    env: {
      BANK_PORT: '0',
      BANK_JOURNAL: journal,
      BANK_API_TOKEN: token,
      BANK_CALLBACK_URL: `${url}/rails/sandbox/callbacks`,
      BANK_CALLBACK_SECRET: callbackSecret,
    },
  });
  parts.push(bank);
  const worker = await startScript({
    name: `${name}-worker`,
    script: `./${name}Worker.mjs`,
    directory,
    env: {
      ...env,
      PORT: port,
      SANDBOX_BANK_URL: bank.announced,
      SANDBOX_BANK_TOKEN: token,
      SANDBOX_BANK_CALLBACK_SECRET: callbackSecret,
    },
  });
  parts.push(worker);
  return url;
}

/** Creates an empty database on the product's server and returns its URL. */
export async function createDatabase({ database, stack }, name) {
  await database`drop database if exists ${database(name)} with (force)`;
  await database`create database ${database(name)}`;
  const url = new URL(stack.description.database_url);
  url.pathname = `/${name}`;
  return url.href;
}
