// The third way: DBOS Transact, one workflow a payout, on the same PostgreSQL server.
import { join } from 'node:path';
import { connectDatabase, transaction } from '../../dist/src/db/client.js';
import { postEntries } from '../../dist/src/db/ledger.js';
import { migrate } from '../../dist/src/db/migrate.js';
import { fundEntry } from '../../dist/src/domain/ledger.js';
import { amountMinor, openCustomer } from './customer.mjs';
import { check, timeWay } from './measure.mjs';
import { createDatabase, startOwnParts } from './ownParts.mjs';
import { watchProcesses } from './processes.mjs';

/** Connections to DBOS's own tables: the server has 100, and the product and this bench hold 70. */
const systemPoolSize = 20;

export async function measureDbos(bench, { payouts, concurrency, pollingMs, warmup }) {
  const { directory } = bench;
  // Where the product's own sweep does not find the payouts and take them over.
  const databases = {
    product: await createDatabase(bench, 'corridor_dbos_product'),
    system: await createDatabase(bench, 'corridor_dbos_system'),
  };
  const database = connectDatabase({
    ...{ url: databases.product, poolSize: 2, applicationName: 'bench' },
  });
  const parts = [];
  try {
    await migrate(database);
    const customer = await openCustomer(bench, 'dbos', payouts + warmup);
    await copyCustomer(bench.database, database, customer, payouts + warmup);
    const journal = join(directory, 'bank-journal-dbos.jsonl');
    const url = await startOwnParts(bench, parts, {
      name: 'dbos',
      script: './dbosWorker.mjs',
      journal,
      env: {
        DATABASE_URL: databases.product,
        DBOS_SYSTEM_DATABASE_URL: databases.system,
        DBOS_POOL_SIZE: String(systemPoolSize),
        DBOS_CONCURRENCY: String(concurrency),
        DBOS_POLLING_MS: String(pollingMs),
      },
    });
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
