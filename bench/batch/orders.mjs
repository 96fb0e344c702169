// A batch in which each order of the sandbox bank applies to 5 % of the items. Measures how long until every
// item has reached the status its order leads to, and checks that nothing was sent twice; see ../README.md.
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { withBench } from './bench.mjs';
import { batchBody, openCustomer } from './customer.mjs';
import { countFacts, unbalanced } from './measure.mjs';

const { values } = parseArgs({
  options: {
    payouts: { type: 'string', default: '10000' },
    data: { type: 'string', default: '.corridor/bench' },
  },
});
const items = Number(values.payouts);

/** The status each order leads to, and how many transfers the bank carries out for it. */
const orders = new Map([
  ['reject AC04', { status: 'failed', transfers: 0 }],
  ['late rejection AC04', { status: 'failed', transfers: 1 }],
  ['return AM04 after 2s', { status: 'returned', transfers: 1 }],
  ['return AM04 after 2s before settlement', { status: 'returned', transfers: 1 }],
  ['delay 10s', { status: 'settled', transfers: 1 }],
  ['timeout then settle', { status: 'settled', transfers: 1 }],
  ['timeout then nothing', { status: 'processing', transfers: 0 }],
  ['duplicate callbacks', { status: 'settled', transfers: 1 }],
  ['never settle', { status: 'sent', transfers: 1 }],
  ['wrong amount', { status: 'sent', transfers: 1, attention: 'amount_mismatch' }],
]);
const plain = { status: 'settled', transfers: 1 };
const names = [...orders.keys()];

/** The orders are spread evenly over the batch. */
const orderOf = (index) => names[index % 20];

/** Timeout: the longest order takes ten seconds; the rest is for the work, even on a busy machine. */
const limitMs = 240_000;

/** Poll interval. Each request counts the batch's items, and the sum of the counters is checked. */
const pollIntervalMs = 1_000;

function referenceOf(index) {
  const order = orderOf(index);
  return order === undefined ? `Invoice ${index + 1}` : `simulate: ${order}`;
}

function expectedCounts() {
  const counts = { settled: 0, failed: 0, returned: 0, processing: 0, sent: 0 };
  for (let index = 0; index < items; index += 1) {
    counts[(orders.get(orderOf(index)) ?? plain).status] += 1;
  }
  return counts;
}

/** Polls until the counters are as expected, and records every inconsistency on the way in `problems`. */
async function watch(customer, id, startedMs, problems) {
  const wanted = Object.entries(expectedCounts());
  for (let looks = 1; ; looks += 1) {
    const { counts } = await customer.request(`GET /v1/batches/${id}`);
    const { total, ...others } = counts;
    const sum = Object.values(others).reduce((all, count) => all + count, 0);
    if (sum !== total || total !== items) problems.push(`counters: ${JSON.stringify(counts)}`);
    const seconds = (performance.now() - startedMs) / 1_000;
    if (wanted.every(([status, count]) => counts[status] === count)) return { seconds, looks };
    if (seconds * 1_000 > limitMs) throw new Error(`Still ${JSON.stringify(counts)}.`);
    await delay(pollIntervalMs);
  }
}

/** Checks each item's status and number of transfers, and that it has each of its events only once. */
async function checkItems({ database, journal }, id, problems) {
  const rows = await database`
    select id, batch_index as index, status, attention_reason from payouts where batch_id = ${id}`;
  const facts = await countFacts(journal);
  for (const { id: payoutId, index, status, attentionReason } of rows) {
    const { attention = null, ...wanted } = orders.get(orderOf(index)) ?? plain;
    const transfers = facts.get(`transfer ${payoutId}`) ?? 0;
    if (status !== wanted.status || attentionReason !== attention || transfers !== wanted.transfers)
      problems.push(
        `${payoutId} (${orderOf(index)}): ${status} ${attentionReason}, sent ${transfers} times`,
      );
  }
  const repeated = await database`
    select subject_id, type from events
     where subject_id in (select id from payouts where batch_id = ${id})
     group by subject_id, type having count(*) > 1`;
  if (repeated.length > 0) problems.push(`${repeated.length} events were announced more than once`);
  const transfers = rows.reduce((sum, row) => sum + (facts.get(`transfer ${row.id}`) ?? 0), 0);
  return { rows: rows.length, transfers };
}

const problems = await withBench(values.data, async (bench) => {
  const found = [];
  const customer = await openCustomer(bench, 'orders', items);
  const startedMs = performance.now();
  const { id } = await customer.request(
    'POST /v1/batches',
    batchBody(customer, items, referenceOf),
  );
  const { seconds, looks } = await watch(customer, id, startedMs, found);
  const { rows, transfers } = await checkItems(bench, id, found);
  if (rows !== items) found.push(`there are ${rows} items, not ${items}`);
  found.push(...(await unbalanced(bench.database)));
  console.log(
    `${items} items, ${items / 20} of each of ${names.length} orders: each is where its order ` +
      `leads after ${seconds.toFixed(1)} s; the counters were looked at ${looks} times; the bank ` +
      `carried out ${transfers} transfers`,
  );
  return found;
});
for (const problem of problems.slice(0, 20)) console.error(problem);
process.exitCode = problems.length === 0 ? 0 : 1;
