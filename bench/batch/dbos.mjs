// The third way: DBOS Transact, one workflow a payout, on the same PostgreSQL server.
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { choosePort } from '../../dist/sandbox/stack/ports.js';
import { connectDatabase, transaction } from '../../dist/src/db/client.js';
import { postEntries } from '../../dist/src/db/ledger.js';
import { migrate } from '../../dist/src/db/migrate.js';
import { fundEntry } from '../../dist/src/domain/ledger.js';
import { amountMinor, openCustomer } from './customer.mjs';
import { check, timeWay } from './measure.mjs';
import { startScript, watchProcesses } from './processes.mjs';

/** Connections to DBOS's own tables: the server has 100, and the product and this bench hold 70. */
const systemPoolSize = 20;

export async function measureDbos(bench, { payouts, concurrency, pollingMs, warmup }) {
  const { directory } = bench;
  const databases = await createDatabases(bench);
  const database = connectDatabase({
    ...{ url: databases.product, poolSize: 2, applicationName: 'bench' },
  });
  const parts = [];
  try {
    await migrate(database);
    const customer = await openCustomer(bench, 'dbos', payouts + warmup);
    await copyCustomer(bench.database, database, customer, payouts + warmup);
    const journal = join(directory, 'bank-journal-dbos.jsonl');
    // A bank still owes the news of a run that failed, and the new databases know nothing of it.
    await rm(journal, { force: true });
    const url = await startParts(bench, parts, { databases, journal, concurrency, pollingMs });
    const { postgres } = bench.stack.description.pids;
    const own = Object.fromEntries(parts.map(({ name, pid }) => [name, pid]));
    let processes;
    const prepare = async () => {
      processes = watchProcesses({ postgres, ...own, sink: bench.sinkPid });
      return (count) => send(url, customer, count);
    };
    const timed = await timeWay({ bench, database, customer, warmup, payouts, prepare });
    const peaksMb = processes.peaksMb();
    const processorMs = processes.msAPayout(payouts);
    const checked = await check({ bench, database, customer, journal, payouts: payouts + warmup });
    return { ...timed, concurrency, pollingMs, peaksMb, processorMs, ...checked };
  } finally {
    for (const part of parts.toReversed()) await part.stop();
    await database.end({ timeout: 5 });
  }
}

/** A bank and a worker that know each other: the product's bank calls back its own API. */
async function startParts(bench, parts, settings) {
  const { directory } = bench;
  const { databases, journal, concurrency, pollingMs } = settings;
  const port = String(await choosePort(0, '--dbos-port'));
  const url = `http://127.0.0.1:${port}`;
  const secret = () => randomBytes(24).toString('base64url');
  const [token, callbackSecret] = [secret(), secret()];
  const bank = await startScript({
    name: 'dbos-bank',
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
    name: 'dbos-worker',
    script: './dbosWorker.mjs',
    directory,
    env: {
      PORT: port,
      DATABASE_URL: databases.product,
      DBOS_SYSTEM_DATABASE_URL: databases.system,
      DBOS_POOL_SIZE: String(systemPoolSize),
      DBOS_CONCURRENCY: String(concurrency),
      DBOS_POLLING_MS: String(pollingMs),
      SANDBOX_BANK_URL: bank.announced,
      SANDBOX_BANK_TOKEN: token,
      SANDBOX_BANK_CALLBACK_SECRET: callbackSecret,
    },
  });
  parts.push(worker);
  return url;
}

/**
 * Two databases beside the product's: DBOS keeps its workflows in the one, and the payouts are in
 * the other, where the product's own sweep does not find them and take them over.
 */
async function createDatabases({ database, stack }) {
  const urls = {};
  for (const name of ['product', 'system']) {
    const databaseName = `corridor_dbos_${name}`;
    await database`drop database if exists ${database(databaseName)} with (force)`;
    await database`create database ${database(databaseName)}`;
    const url = new URL(stack.description.database_url);
    url.pathname = `/${databaseName}`;
    urls[name] = url.href;
  }
  return urls;
}

/** The rows that a payout refers to, and the money for it. */
async function copyCustomer(from, to, customer, payouts) {
  const rows = [
    ['accounts', customer.accountId],
    ['beneficiaries', customer.beneficiaryId],
    ['webhook_endpoints', customer.endpointId],
  ];
  for (const [table, id] of rows) {
    const [{ row }] =
      await from`select to_json(t)::text as row from ${from(table)} t where id = ${id}`;
    await to`insert into ${to(table)}
      select (json_populate_record(null::${to(table)}, ${row}::text::json)).*`;
  }
  await transaction(to, (sql) =>
    postEntries(sql, [
      {
        entry: fundEntry('USD', BigInt(payouts * amountMinor)),
        mode: 'test',
        accountId: customer.accountId,
        payoutId: null,
      },
    ]),
  );
}

async function send(url, { accountId, beneficiaryId }, count) {
  const response = await fetch(`${url}/payouts`, {
    method: 'POST',
    body: JSON.stringify({ accountId, beneficiaryId, count }),
  });
  if (response.status !== 202) throw new Error(`The DBOS worker: ${await response.text()}`);
  return {};
}
