// The floor: only the rows and calls that a batch cannot do without, in as little code as possible. It is
// not a product: nothing is validated, and nothing is recovered after a crash.
import { readFile } from 'node:fs/promises';
import { batchBody } from './customer.mjs';
import { countTransitions } from './measure.mjs';
import { createDatabase, measureOwnParts } from './ownParts.mjs';

/** The same shape as for the other ways; `name` selects the sink's counter. */
const customer = { name: 'floor', accountId: 'acct_floor', beneficiaryId: 'bnf_floor' };

/** The ledger accounts, in the order of their numbers in floorWorker.mjs. */
const accounts = ['available', 'held', 'fx_position', 'fee_revenue', 'rail', 'rounding'];

export async function measureFloor(bench, { payouts, warmup }) {
  const { temporal, stack } = bench;
  const databaseUrl = await createDatabase(bench, 'corridor_floor');
  const { postgres, temporal: temporalPid } = stack.description.pids;
  const way = {
    name: 'floor',
    databaseUrl,
    env: {
      DATABASE_URL: databaseUrl,
      ACCOUNT_ID: customer.accountId,
      SINK_URL: bench.sinkUrl,
      TEMPORAL_ADDRESS: stack.description.temporal_address,
      TEMPORAL_NAMESPACE: temporal.options.namespace,
      TASK_QUEUE: 'bench-floor',
      BENEFICIARY: JSON.stringify({
        ...{ type: 'individual', name: 'Ada Lovelace', country: 'DE', currency: 'EUR' },
        iban: 'DE89370400440532013000',
      }),
    },
    pids: { postgres, temporal: temporalPid },
    setUp,
    bodyOf: batchBody,
  };
  const measured = await measureOwnParts(bench, way, { payouts, warmup });
  const { workflows, transitions } = await countTransitions(temporal, measured.startedAtMs);
  return { ...measured, workflows, transitionsAPayout: transitions / payouts };
}

async function setUp(database) {
  await database.unsafe(await readFile(new URL('./floorTables.sql', import.meta.url), 'utf8'));
  await database`insert into accounts values (${customer.accountId}, 0, ${10 ** 12})`;
  await database`
    insert into ledger_accounts
    select t.number, 'test', t.kind from unnest(${accounts}::text[]) with ordinality as t (kind, number)`;
  return customer;
}
