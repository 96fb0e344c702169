// The floor: the rows and calls that a batch cannot do without, in as little code as they take. It is
// no product: nothing is checked, and what dies is not recovered.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connectDatabase } from '../../dist/src/db/client.js';
import { batchBody } from './customer.mjs';
import { check, countTransitions, timeWay } from './measure.mjs';
import { createDatabase, startOwnParts } from './ownParts.mjs';
import { watchProcesses } from './processes.mjs';

/** As the other ways': the name is that of the sink's counter. */
const customer = { name: 'floor', accountId: 'acct_floor', beneficiaryId: 'bnf_floor' };

/** The accounts of the ledger, by their numbers in floorWorker.mjs. */
const accounts = ['available', 'held', 'fx_position', 'fee_revenue', 'rail', 'rounding'];

export async function measureFloor(bench, { payouts, warmup }) {
  const { directory, temporal, stack } = bench;
  const url = await createDatabase(bench, 'corridor_floor');
  const database = connectDatabase({ url, poolSize: 2, applicationName: 'bench' });
  const parts = [];
  try {
    await database.unsafe(await readFile(new URL('./floorTables.sql', import.meta.url), 'utf8'));
    await database`insert into accounts values (${customer.accountId}, 0, ${10 ** 12})`;
    await database`
      insert into ledger_accounts
      select t.number, 'test', t.kind from unnest(${accounts}::text[]) with ordinality as t (kind, number)`;
    const journal = join(directory, 'bank-journal-floor.jsonl');
    const worker = await startOwnParts(bench, parts, {
      name: 'floor',
      script: './floorWorker.mjs',
      journal,
      env: {
        DATABASE_URL: url,
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
    });
    const { postgres, temporal: temporalPid } = stack.description.pids;
    const own = Object.fromEntries(parts.map(({ name, pid }) => [name, pid]));
    let processes;
    const prepare = async (count) => {
      const body = batchBody(customer, count);
      processes = watchProcesses({ postgres, temporal: temporalPid, ...own, sink: bench.sinkPid });
      return () => send(worker, body);
    };
    const timed = await timeWay({ bench, database, customer, warmup, payouts, prepare });
    const peaksMb = processes.peaksMb();
    const processorMs = processes.msAPayout(payouts);
    const { workflows, transitions } = await countTransitions(temporal, timed.startedAtMs);
    const checked = await check({ bench, database, customer, journal, payouts: payouts + warmup });
    const transitionsAPayout = transitions / payouts;
    return { ...timed, workflows, transitionsAPayout, peaksMb, processorMs, ...checked };
  } finally {
    for (const part of parts.toReversed()) await part.stop();
    await database.end({ timeout: 5 });
  }
}

async function send(url, body) {
  const response = await fetch(`${url}/payouts`, { method: 'POST', body });
  if (response.status !== 202) throw new Error(`The floor's worker: ${await response.text()}`);
  return {};
}
