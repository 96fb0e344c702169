// A batch in which five of a hundred items have each order of the sandbox bank: how long until
// every item is where its order leads, and whether nothing was sent twice; see ../README.md.
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

/** Where each order leads, and how often the bank carries such a transfer out. */
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

/** The items of the orders stand all over the batch. */
const orderOf = (index) => names[index % 20];

/** The longest order takes ten seconds; the rest is the work, also on a machine that is busy. */
const limitMs = 240_000;

/** Each look counts the items of the batch, at which the sum of the counters is checked. */
const lookPauseMs = 1_000;

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

/** Looks until the counters are those of the orders; what was wrong with them on the way. */
async function watch(customer, id, startedMs, problems) {
  const wanted = Object.entries(expectedCounts());
  for (let looks = 1; ; looks += 1) {
    const { counts } = await customer.ask(`GET /v1/batches/${id}`);
    const { total, ...others } = counts;
    const sum = Object.values(others).reduce((all, count) => all + count, 0);
    if (sum !== total || total !== items) problems.push(`counters: ${JSON.stringify(counts)}`);
    const seconds = (performance.now() - startedMs) / 1_000;
    if (wanted.every(([status, count]) => counts[status] === count)) return { seconds, looks };
    if (seconds * 1_000 > limitMs) throw new Error(`Still ${JSON.stringify(counts)}.`);
    await delay(lookPauseMs);
  }
}

/** Every item is where its order leads, was sent as often, and has told each of its events once. */
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
  if (repeated.length > 0) problems.push(`${repeated.length} events were told more than once`);
  const transfers = rows.reduce((sum, row) => sum + (facts.get(`transfer ${row.id}`) ?? 0), 0);
  return { rows: rows.length, transfers };
}

const problems = await withBench(values.data, async (bench) => {
  const found = [];
  const customer = await openCustomer(bench, 'orders', items);
  const startedMs = performance.now();
  const { id } = await customer.ask('POST /v1/batches', batchBody(customer, items, referenceOf));
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
