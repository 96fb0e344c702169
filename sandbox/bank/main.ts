import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type BankSettings, startBank } from './server.js';

/** The sandbox bank as a process. `environment` below lists all its settings. */

const secret = z
  .string({ error: 'a secret of at least 16 characters' })
  .min(16, 'a secret of at least 16 characters');

const environment = z.object({
  /** 0 picks a free port. */
  BANK_PORT: z
    .string()
    .regex(/^\d{1,5}$/, 'a port number, 0 to 65535')
    .transform((digits) => Number.parseInt(digits, 10))
    .refine((port) => port <= 65_535, 'a port number, 0 to 65535')
    .default(0),
  BANK_HOST: z.string().default('127.0.0.1'),
  BANK_JOURNAL: z.string({ error: 'the path of the journal file' }),
  /** Each secret can also be set as `…_FILE`, the path of a file that contains it. */
  BANK_API_TOKEN: secret,
  BANK_CALLBACK_URL: z.url({ protocol: /^https?$/, error: 'an http or https URL' }),
  BANK_CALLBACK_SECRET: secret,
  /** The service's connector relies on the default of one day; tests shorten it. */
  BANK_KEY_RETENTION_SECONDS: z
    .string()
    .regex(/^\d{1,7}$/, 'whole seconds')
    .transform((digits) => Number.parseInt(digits, 10))
    .default(86_400),
});

/** Returns the settings, or an error message with a line for each invalid variable. */
function readSettings(log: BankSettings['log']): BankSettings | string {
  const found: Record<string, string | undefined> = {};
  for (const name of Object.keys(environment.shape)) {
    // Empty means unset, as with an undefined variable in a compose file.
    found[name] = process.env[name] || readSecretFile(`${name}_FILE`);
  }
  const result = environment.safeParse(found);
  if (!result.success) {
    return result.error.issues
      .map(({ path, message }) => {
        const name = path.join('.');
        const isSet = found[name] !== undefined;
        return `${name}: expected ${message}, but ${isSet ? 'its value is not' : 'it is not set'}`;
      })
      .join('\n');
  }
  const { data } = result;
  return {
    host: data.BANK_HOST,
    port: data.BANK_PORT,
    journalPath: data.BANK_JOURNAL,
    apiToken: data.BANK_API_TOKEN,
    callbackUrl: data.BANK_CALLBACK_URL,
    callbackSecret: data.BANK_CALLBACK_SECRET,
    keyRetentionMs: data.BANK_KEY_RETENTION_SECONDS * 1000,
    log,
  };
}

function readSecretFile(name: string): string | undefined {
  const path = process.env[name];
  if (path === undefined || path === '') return undefined;
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (cause) {
    throw new Error(`${name}: expected a file that can be read, ${path} cannot`, { cause });
  }
}

async function main(): Promise<void> {
  const settings = readSettings((message) => process.stderr.write(`${message}\n`));
  if (typeof settings === 'string') throw new Error(settings);
  const bank = await startBank(settings);
  const stopped = Promise.race([
    once(process, 'SIGTERM'),
    once(process, 'SIGINT'),
    // The IPC channel closes when the parent ends, even if it was killed.
    once(process, 'disconnect'),
  ]);
  process.stdout.write(`${JSON.stringify({ listening: bank.url })}\n`);
  await stopped;
  await bank.close();
  // An open channel would keep the process alive.
  if (process.connected) process.disconnect();
}

main().catch((error: unknown) => {
  process.stderr.write(
    `The sandbox bank cannot continue.\n${error instanceof Error ? error.message : String(error)}\n`,
  );
  process.exitCode = 1;
});
