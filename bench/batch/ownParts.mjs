// A bank and a worker of a way's own, and databases for them beside the product's.
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { choosePort } from '../../dist/sandbox/stack/ports.js';
import { startScript } from './processes.mjs';

/**
 * Starts a bank and a worker that know each other, since the product's bank calls back its own API.
 * Each is pushed to `parts`, to be stopped in the opposite order.
 *
 * @param {{ name: string, script: string, journal: string, env: Record<string, string> }} way
 * @returns the URL of the worker
 */
export async function startOwnParts({ directory }, parts, { name, script, journal, env }) {
  // A bank sends what it has not reported of an earlier run, which the new databases do not know.
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
    script,
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

/** Makes an empty database on the product's server; answers its URL. */
export async function createDatabase({ database, stack }, name) {
  await database`drop database if exists ${database(name)} with (force)`;
  await database`create database ${database(name)}`;
  const url = new URL(stack.description.database_url);
  url.pathname = `/${name}`;
  return url.href;
}
