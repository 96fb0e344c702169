import { z } from 'zod';
import { readJson, writeJson } from '../src/cli/jsonFile.js';
import { defaultApiVersion } from '../src/contract/versions/index.js';
import { findAccount, insertAccount } from '../src/db/accounts.js';
import { createApiKey, hashOfKey, insertApiKey } from '../src/db/apiKeys.js';
import { type Database, transaction } from '../src/db/client.js';
import { postEntries } from '../src/db/ledger.js';
import { fundEntry } from '../src/domain/ledger.js';

const seedFile = z.object({ accountId: z.string(), apiKey: z.string() });
export type Seed = z.infer<typeof seedFile>;

/** 1,000,000.00 of each: enough for the demo's ten thousand payouts. */
const funds = [
  { currency: 'USD', amountMinor: 100_000_000n },
  { currency: 'EUR', amountMinor: 100_000_000n },
  { currency: 'GBP', amountMinor: 100_000_000n },
] as const;

/** Returns a funded test account and its key. Creates both the first time and stores them in the file. */
export async function seedAccount(database: Database, file: string): Promise<Seed> {
  const known = await readJson(file, seedFile);
  if (known !== undefined && (await findAccount(database, known.accountId)) !== undefined) {
    return known;
  }
  const apiKey = createApiKey('test');
  const seed = await transaction(database, async (sql) => {
    const account = await insertAccount(sql, {
      mode: 'test',
      name: 'Local test account',
      apiVersion: defaultApiVersion,
    });
    const accountId = account.id;
    await insertApiKey(sql, { accountId, keyHash: hashOfKey(apiKey), lastFour: apiKey.slice(-4) });
    await postEntries(
      sql,
      funds.map(({ currency, amountMinor }) => ({
        entry: fundEntry(currency, amountMinor),
        mode: 'test',
        accountId,
        payoutId: null,
      })),
    );
    return { accountId, apiKey };
  });
  await writeJson(file, seed);
  return seed;
}
