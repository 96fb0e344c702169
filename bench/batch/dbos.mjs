// The third way: DBOS Transact, one workflow per payout, on the same PostgreSQL server.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { transaction } from '../../dist/src/db/client.js';
import { postEntries } from '../../dist/src/db/ledger.js';
import { migrate } from '../../dist/src/db/migrate.js';
import { fundEntry } from '../../dist/src/domain/ledger.js';
import { amountMinor, openCustomer } from './customer.mjs';
import { createDatabase, measureOwnParts } from './ownParts.mjs';

/** Connections to DBOS's own tables: the server allows 100, and the product and this benchmark use 70. */
const systemPoolSize = 20;

export async function measureDbos(bench, { payouts, concurrency, pollingMs, warmup }) {
  // A separate database, so that the product's sweep does not find the payouts and take them over.
  const databases = {
    product: await createDatabase(bench, 'corridor_dbos_product'),
    system: await createDatabase(bench, 'corridor_dbos_system'),
  };
  const way = {
    name: 'dbos',
    databaseUrl: databases.product,
    env: {
      DATABASE_URL: databases.product,
      DBOS_SYSTEM_DATABASE_URL: databases.system,
      DBOS_POOL_SIZE: String(systemPoolSize),
      DBOS_CONCURRENCY: String(concurrency),
      DBOS_POLLING_MS: String(pollingMs),
      // Encrypts the customer's details and secrets.
      MASTER_KEY: readSecrets(bench).masterKey,
    },
    pids: { postgres: bench.stack.description.pids.postgres },
    setUp: async (database) => {
      await migrate(database);
      const customer = await openCustomer(bench, 'dbos', payouts + warmup);
      await copyCustomer(bench.database, database, customer, payouts + warmup);
      return customer;
    },
    bodyOf: ({ accountId, beneficiaryId }, count) =>
      JSON.stringify({ accountId, beneficiaryId, count }),
  };
  return { ...(await measureOwnParts(bench, way, { payouts, warmup })), concurrency, pollingMs };
}

function readSecrets({ directory }) {
  return JSON.parse(readFileSync(join(directory, 'secrets.json'), 'utf8'));
}

/** Copies the rows that payouts refer to, and funds the account. */
async function copyCustomer(from, to, customer, payouts) {
  const { accountId, beneficiaryId, endpointId } = customer;
  const rows = [
    ['accounts', 'id', accountId],
    ['account_keys', 'account_id', accountId],
    ['beneficiaries', 'id', beneficiaryId],
    ['beneficiary_keys', 'beneficiary_id', beneficiaryId],
    ['webhook_endpoints', 'id', endpointId],
    ['webhook_secrets', 'endpoint_id', endpointId],
  ];
  for (const [table, key, id] of rows) {
    const [{ row }] =
      await from`select to_json(t)::text as row from ${from(table)} t where ${from(key)} = ${id}`;
    await to`insert into ${to(table)}
      select (json_populate_record(null::${to(table)}, ${row}::text::json)).*`;
  }
  await transaction(to, (sql) =>
    postEntries(sql, [
      {
        entry: fundEntry('USD', BigInt(payouts * amountMinor)),
        mode: 'test',
        accountId,
        payoutId: null,
      },
    ]),
  );
}
