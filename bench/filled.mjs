// Measures the effect of millions of payouts on a batch, accepting, reads, lists and the sweep: two stacks, one
// of them filled, are measured in turns; also the size of a payout in each table. See README.md.
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { claimOverdueChunks } from '../dist/src/db/chunks.js';
import { overdueEndpoints } from '../dist/src/db/deliveries.js';
import { claimOverduePayouts } from '../dist/src/db/payouts.js';
import { withBench } from './batch/bench.mjs';
import { batchBody, openCustomer } from './batch/customer.mjs';
import { timeWay } from './batch/measure.mjs';
import { describeMachine, heading, percentile } from './batch/report.mjs';
import { closedLoop, pay } from './payers.mjs';

const { values } = parseArgs({
  options: {
    payouts: { type: 'string', default: '3000000' },
    rounds: { type: 'string', default: '5' },
    data: { type: 'string', default: '.corridor/bench' },
    json: { type: 'string' },
  },
});
const [payouts, rounds] = [Number(values.payouts), Number(values.rounds)];

/** The maximum size of a batch, and the number of payouts in each copy. */
const items = 10_000;

/** Reads alternate between the stacks in blocks, because they take milliseconds and other load lasts longer. */
const [blocks, inBlock] = [30, 20];

/** Number of payouts, accepted sequentially so that the tables are measured and not a queue. */
const accepts = 40;

async function medianMs(work, count) {
  return percentile(await closedLoop(count, 1, work), 0.5);
}

const main = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url));

/** Import that makes a process print its CPU time on exit. */
const printsTime = `data:text/javascript,${encodeURIComponent(
  "process.on('exit', () => { const { user, system } = process.cpuUsage(); console.error((user + system) / 1000); })",
)}`;

/** Runs Node repeatedly with these arguments, as an operator would. Returns the median wall and CPU time. */
async function commandMs(args, runs = 20) {
  const [walls, processors] = [[], []];
  for (let run = 0; run < runs; run += 1) {
    const begunMs = performance.now();
    const { stderr } = await promisify(execFile)(process.execPath, [
      '--import',
      printsTime,
      ...args,
    ]);
    walls.push(performance.now() - begunMs);
    processors.push(Number(stderr));
  }
  return { wall: percentile(walls, 0.5), processor: percentile(processors, 0.5) };
}

/** Measures a batch and single payouts of a new customer, and what an operator sees of the account with most payouts. */
async function measure({ bench, large }, name) {
  const { database } = bench;
  const customer = await openCustomer(bench, name, items + accepts + 1);
  const body = batchBody(customer, items);
  const prepare = async () => async () => void (await customer.request('POST /v1/batches', body));
  const { announcedSeconds } = await timeWay({
    ...{ bench, database, customer, prepare, warmup: 0, payouts: items },
  });
  const { data } = await large.request('GET /v1/payouts?limit=20');
  const nothing = await commandMs(['--eval', '0']);
  const shown = (id) => commandMs([main, 'payouts', 'show', id, '--data', bench.directory]);
  const show = await shown(data[7].id);
  // Temporal is asked for its attempts in progress, too.
  const open = await shown((await pay(customer, 'simulate: never settle')).id);
  return {
    'batch of 10,000, to its last webhook': announcedSeconds * 1_000,
    'accepting a payout': await medianMs((index) => pay(customer, `${name} ${index}`), accepts),
    'corridor payouts show': show.wall,
    '  without the start of Node': show.wall - nothing.wall,
    '  its processor time, of the same': show.processor - nothing.processor,
    '  of an open payout, without the start of Node': open.wall - nothing.wall,
  };
}

/** The reads of a stack by name. */
async function readsOf({ bench: { database }, large }) {
  const { data } = await large.request('GET /v1/payouts?limit=20');
  const get = (path) => () => large.request(`GET /v1/${path}`);
  return {
    'GET a payout': get(`payouts/${data[7].id}`),
    'list of payouts': get('payouts?limit=20'),
    'list by status': get('payouts?limit=20&status=settled'),
    // One result, because each copy of the batch has a match and a longer response is not a slower search.
    'list by reference': get('payouts?limit=1&reference=Invoice%207'),
    'list by beneficiary': get(`payouts?limit=20&beneficiary=${data[7].beneficiary}`),
    'list of events': get('events?limit=20'),
    'list of balance transactions': get('balance_transactions?limit=20'),
    'what the sweep looks for': async () => {
      await claimOverduePayouts(database);
      await claimOverdueChunks(database);
      await overdueEndpoints(database);
    },
  };
}

/** Measures each read in alternating blocks. Returns the figures of each block. */
async function readInTurns(stacks) {
  const reads = { empty: await readsOf(stacks.empty), filled: await readsOf(stacks.filled) };
  const found = { empty: [], filled: [] };
  for (let block = 0; block < blocks; block += 1) {
    for (const which of ['empty', 'filled']) found[which].push({});
    for (const name of Object.keys(reads.empty)) {
      for (const which of block % 2 === 0 ? ['empty', 'filled'] : ['filled', 'empty']) {
        found[which][block][name] = await medianMs(reads[which][name], inBlock);
      }
    }
  }
  return found;
}

/** Measures both stacks in turns, the one that begins alternating. Returns the figures of each round. */
async function measureInTurns(stacks) {
  const found = { empty: [], filled: [] };
  for (let round = 1; round <= rounds; round += 1) {
    const names = round % 2 === 1 ? ['empty', 'filled'] : ['filled', 'empty'];
    for (const name of names) {
      console.error(`  ${name}, round ${round} …`);
      found[name].push(await measure(stacks[name], `${name}-${round}`));
    }
  }
  return found;
}

/** Opens the account with most payouts and pays a batch of it, of which the fill makes copies. */
async function payLarge(bench) {
  const large = await openCustomer(bench, 'large', items);
  const body = batchBody(large, items);
  const prepare = async () => async () => void (await large.request('POST /v1/batches', body));
  await timeWay({
    ...{ bench, database: bench.database, customer: large, prepare, warmup: 0, payouts: items },
  });
  return large;
}

/** SQL for the IDs of copy $1: as long and as unique as the originals. */
const copied = (id) => `overlay(${id} placing lpad(to_hex($1), 6, '0') from length(${id}) - 5)`;

/** Column expressions for copy $1 of a batch, each a day older than the last. Other columns stay the same. */
const tables = {
  batches: { id: copied('id') },
  payouts: {
    ...{ id: copied('id'), batch_id: copied('batch_id') },
    applied_facts: 'array(select fact + 10000000 * $1::bigint from unnest(applied_facts) fact)',
  },
  payout_terms: { payout_id: copied('payout_id') },
  payout_metadata_terms: { payout_id: copied('payout_id') },
  ledger_entries: { payout_id: copied('payout_id'), id: "nextval('ledger_entries_id_seq')" },
  events: {
    ...{ id: copied('id'), subject_id: copied('subject_id') },
    sequence: 'sequence + 100000 * $1',
  },
  deliveries: { event_id: copied('event_id') },
  rail_inbox: {
    ...{ id: 'id + 10000000 * $1::bigint', payout_id: copied('payout_id') },
    ...{ rail_key: copied('rail_key'), rail_event_id: `rail_event_id || '.' || $1` },
  },
};

const times = new Set(['requested_at', 'created_at', 'received_at']);

/** Saves the large customer's current rows in separate tables and returns statements that copy them. */
async function prepareCopies(sql, accountId) {
  const statements = [];
  for (const [table, changes] of Object.entries(tables)) {
    const own = `${table}_of_the_batch`;
    const where = {
      payout_terms: 'payout_id in (select id from payouts_of_the_batch)',
      payout_metadata_terms: 'payout_id in (select id from payouts_of_the_batch)',
      deliveries: 'event_id in (select id from events_of_the_batch)',
      rail_inbox: 'payout_id in (select id from payouts_of_the_batch)',
    };
    await sql.unsafe(`create unlogged table ${own} as
      select * from ${table} where ${where[table] ?? `account_id = '${accountId}'`}`);
    const columns = await sql`
      select attname as name from pg_attribute
       where attrelid = ${table}::regclass and attnum > 0 and not attisdropped order by attnum`;
    const expression = ({ name }) =>
      changes[name] ?? (times.has(name) ? `${name} - make_interval(days => $1)` : name);
    statements.push(`insert into ${table} (${columns.map(({ name }) => name).join(', ')})
      overriding system value select ${columns.map(expression).join(', ')} from ${own}`);
  }
  return statements;
}

/** Fills the tables with copies of the customer's rows, with triggers disabled. */
async function fill({ database }, { accountId }) {
  const statements = await prepareCopies(database, accountId);
  const copies = payouts / items;
  for (let copy = 1; copy <= copies; copy += 1) {
    await database.begin(async (sql) => {
      await sql`select set_config('session_replication_role', 'replica', true),
                       set_config('statement_timeout', '0', true)`;
      for (const statement of statements) {
        await sql.unsafe(statement.replaceAll('$1', String(copy)));
      }
    });
    if (copy % 50 === 0) console.error(`  ${copy * items} of ${payouts} payouts …`);
  }
  for (const table of Object.keys(tables)) {
    await database.unsafe(`drop table ${table}_of_the_batch`);
  }
  // Autovacuum would otherwise read everything while it is measured. One statement each, as no transaction may contain it.
  const sql = await database.reserve();
  await sql`set statement_timeout = 0`;
  await sql`set transaction_timeout = 0`;
  for (const table of Object.keys(tables)) await sql.unsafe(`vacuum (analyze) ${table}`);
  await sql`checkpoint`;
  await sql`reset all`;
  sql.release();
}

/** Returns the bytes per payout in each table and its indexes. */
async function bytesAPayout({ database }) {
  const [{ count }] = await database`select count(*)::int as count from payouts`;
  const sizes = await database`
    select relname as name, pg_table_size(oid)::float8 as rows, pg_indexes_size(oid)::float8 as indexes
      from pg_class where relname = any (${Object.keys(tables)}::text[]) order by pg_total_relation_size(oid) desc`;
  return sizes.map(({ name, rows, indexes }) => ({
    ...{ name, rows: Math.round(rows / count), indexes: Math.round(indexes / count) },
  }));
}

const machine = describeMachine();
const results = await withBench(`${values.data}-filled`, async (toFill) => {
  const large = await payLarge(toFill);
  await fill(toFill, large);
  const sizes = await bytesAPayout(toFill);
  return withBench(`${values.data}-empty`, async (empty) => {
    const stacks = {
      empty: { bench: empty, large: await payLarge(empty) },
      filled: { bench: toFill, large },
    };
    const found = { rounds: await measureInTurns(stacks), reads: await readInTurns(stacks) };
    return { payouts, sizes, ...found };
  });
});

/** Prints the medians of both stacks, their ratio, and the quartiles of the ratios of pairs. */
function printRatios({ empty: empties, filled: filleds }) {
  for (const name of Object.keys(empties[0])) {
    const [empty, filled] = [empties, filleds].map((all) => all.map((each) => each[name]));
    const [before, after] = [percentile(empty, 0.5), percentile(filled, 0.5)];
    const ratios = filled.map((ms, turn) => ms / empty[turn]);
    const cells = [before.toFixed(1), after.toFixed(1), (after / before).toFixed(2)];
    const range = [0.25, 0.75].map((share) => percentile(ratios, share).toFixed(2)).join(' to ');
    console.log([name.padEnd(48), ...[...cells, range].map((cell) => cell.padStart(14))].join(''));
  }
}

console.log(
  `${heading(machine)}, medians in milliseconds with empty tables and with ${payouts} payouts, their ratio, ` +
    `and the quartiles of the ratios of ${rounds} rounds, or of ${blocks} for reads:`,
);
printRatios(results.rounds);
printRatios(results.reads);
console.table(results.sizes);
if (values.json !== undefined) await writeFile(values.json, JSON.stringify({ machine, results }));
