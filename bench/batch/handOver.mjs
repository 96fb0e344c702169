// A batch in which every item needs its own workflow, with `--each` items for each of the three reasons.
// All are handed over, a person resolves them in bulk and the batch completes; see ../README.md.
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import pLimit from 'p-limit';
import { isFinal } from '../../dist/src/domain/payout.js';
import { runUpdate } from '../../dist/src/temporal/workflowCalls.js';
import { withBench } from './bench.mjs';
import { batchBody, openCustomer } from './customer.mjs';
import { countFacts, unbalanced } from './measure.mjs';

const { values } = parseArgs({
  options: {
    each: { type: 'string', default: '1000' },
    data: { type: 'string', default: '.corridor/bench' },
  },
});
const each = Number(values.each);

/** The rail reports a wrong amount, does not answer, or never reports a settlement. */
const kinds = ['wrong amount', 'timeout then nothing', 'never settle'];
const items = each * kinds.length;

/** Timeout: Temporal needs some milliseconds to start a workflow, and each item then has several steps. */
const limitMs = 60_000 + items * 60;

/** As many concurrent commands as a team in a hurry sends, and more than fit into a workflow task. */
const commandsAtOnce = 25;
const commandLimitMs = 60_000;

/** Retries of a cancellation: while its outcome is unknown, the API answers 503 with Retry-After: 5. */
const cancelTries = 12;
const retryMs = 5_000;

const referenceOf = (index) => `simulate: ${kinds[index % kinds.length]}`;

/** Waits until `count` returns the wanted number, and prints when it did. */
async function until(startedMs, what, wanted, count) {
  for (;;) {
    const [{ n }] = await count();
    const seconds = (performance.now() - startedMs) / 1_000;
    if (n === wanted) {
      console.log(`${wanted} ${what} after ${seconds.toFixed(1)} s`);
      return;
    }
    if (seconds * 1_000 > limitMs) throw new Error(`${n} of ${wanted} ${what}.`);
    await delay(500);
  }
}

/** Moves ten minutes and the rail's deadline into the past, because a benchmark cannot wait for them. */
async function letTimePass(database, id) {
  await database`
    update payouts set submit_started_at = now() - interval '11 minutes'
     where batch_id = ${id} and status = 'processing'`;
  await database`
    update payouts set settle_by = now()
     where batch_id = ${id} and status = 'sent' and attention_at is null`;
  await database`update batch_chunks set wake_at = now() where batch_id = ${id}`;
}

async function cancel(customer, payoutId) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await customer.request(`POST /v1/payouts/${payoutId}/cancel`);
    } catch (error) {
      // A payout that has become final needs no cancellation. The end of the batch checks its status.
      if (/answered 409/.test(error.message)) return undefined;
      if (tries === cancelTries || !/answered 503/.test(error.message)) throw error;
      await delay(retryMs);
    }
  }
}

/** Acts as an operator: marks payouts that wait for a person as settled, and cancels the rest. */
async function resolveAll({ database, temporal }, customer, id) {
  const rows = await database`select * from payouts where batch_id = ${id}`;
  const limit = pLimit(commandsAtOnce);
  const who = {
    operator: 'bench',
    reason: 'resolved in bulk',
    evidence: 'the statement of the bank',
  };
  const settle = async (row) => {
    const command = { name: 'markSettled', args: [who] };
    const { outcome, detail } = await runUpdate(temporal, row, command, commandLimitMs);
    if (outcome !== 'done') throw new Error(`${row.id}: ${outcome}, ${detail}`);
  };
  await Promise.all(
    rows.map((row) =>
      limit(() => (row.attentionReason === null ? cancel(customer, row.id) : settle(row))),
    ),
  );
}

async function checkEnd({ database, journal }, customer, id) {
  const problems = [...(await unbalanced(database))];
  const { status, counts } = await customer.request(`GET /v1/batches/${id}`);
  console.log(`the batch is ${status}: ${JSON.stringify(counts)}`);
  const facts = await countFacts(journal);
  const rows = await database`select id, status, batch_index from payouts where batch_id = ${id}`;
  for (const row of rows) {
    // A transfer that the bank never recorded counts as not sent. All others were sent exactly once.
    const isSent = kinds[row.batchIndex % kinds.length] !== 'timeout then nothing';
    if ((facts.get(`transfer ${row.id}`) ?? 0) !== (isSent ? 1 : 0) || !isFinal(row.status))
      problems.push(`${row.id} is ${row.status}, sent ${facts.get(`transfer ${row.id}`)} times`);
    if (isSent !== (row.status === 'settled')) problems.push(`${row.id} is ${row.status}`);
  }
  return problems;
}

const problems = await withBench(values.data, async (bench) => {
  const { database, temporal } = bench;
  const customer = await openCustomer(bench, 'troubled', items);
  const startedMs = performance.now();
  const { id } = await customer.request(
    'POST /v1/batches',
    batchBody(customer, items, referenceOf),
  );
  const reach = (what, wanted, condition) =>
    until(
      startedMs,
      what,
      wanted,
      () => database`
        select count(*)::int as n from payouts where batch_id = ${id} and ${condition}`,
    );
  await reach('were given to the rail', items, database`submit_started_at is not null`);
  await reach(
    'wait for a person for their amount',
    each,
    database`attention_reason = 'amount_mismatch'`,
  );
  await letTimePass(database, id);
  await reach('have workflows of their own', items, database`driver = id`);
  await reach(
    'wait for a person for their time',
    each,
    database`attention_reason = 'settle_by_passed'`,
  );
  const shown = `BatchId = "${id}" and NeedsAttention = true and ExecutionStatus = "Running"`;
  await until(startedMs, 'are found in the UI', 2 * each, async () => [
    { n: (await temporal.workflow.count(shown)).count },
  ]);
  await resolveAll(bench, customer, id);
  const open = () => database`select open as n from batches where id = ${id}`;
  await until(startedMs, 'items are open, every one is resolved', 0, open);
  return checkEnd(bench, customer, id);
});
for (const problem of problems.slice(0, 20)) console.error(problem);
process.exitCode = problems.length === 0 ? 0 : 1;
