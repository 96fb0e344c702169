// Estimates the cores, processes and terabytes for a load from the measured costs of a payout:
//
//   node tools/capacity.mjs --singles 50 --batched 500 --a-day 1000000
//
// docs/capacity.md describes what this leaves out, and how to measure the costs on your own machines.
import { costs, readInputs } from './inputs.mjs';

/** Each input with its default and the source of the default. */
const inputs = {
  singles: [20, 'single payouts a second at the peak'],
  batched: [200, 'payouts of batches a second at the peak'],
  'a-day': [1_000_000, 'payouts a day, of both kinds'],
  ...costs,
  'batch-ms': [0.94, 'CPU of all parts for a payout of a batch (docs/performance.md)'],
  transitions: [6, 'state transitions of a single payout in Temporal (docs/performance.md)'],
  shards: [512, 'history shards of Temporal (deploy/temporal/server.yaml)'],
  'kept-bytes': [5_047, 'rows and indexes that a payout leaves forever (docs/operations.md)'],
  'retained-bytes': [445, 'its deliveries, kept for 30 days (docs/operations.md)'],
  'wal-bytes': [8_900, 'write-ahead log of a payout (docs/performance.md)'],
  'delete-us': [4, 'time to delete a row, with the vacuum (docs/capacity.md)'],
  'percent-busy': [60, 'share of a core to plan with'],
  'machine-cores': [16, 'cores of the largest machine you would give to one part'],
  'region-rtt-ms': [20, 'round trip to a second region'],
  'region-lag-ms': [500, 'how far an asynchronous replica there is behind'],
};

const of = readInputs(inputs);

const busy = of['percent-busy'] / 100;
const cores = (perSecond, ms) => (perSecond * ms) / 1000 / busy;
const parts = {
  API: cores(of.singles, of['api-ms']),
  worker: cores(of.singles, of['worker-ms']),
  PostgreSQL: cores(of.singles, of['postgres-ms']),
  Temporal: cores(of.singles, of['temporal-ms']),
  // Nearly all of this is for the batch worker and PostgreSQL.
  batches: cores(of.batched, of['batch-ms']),
};
// A Node.js process runs its code on one core. At least two of each, to survive the loss of one.
const processes = (needed) => Math.max(2, Math.ceil(needed));
const counts = {
  API: processes(parts.API),
  worker: processes(parts.worker),
  batches: Math.max(1, Math.ceil(parts.batches)),
};
// At least two, so that each can be replaced.
const temporalServers = Math.max(2, Math.ceil(parts.Temporal / of['machine-cores']));
const connections =
  120 * temporalServers + 25 * counts.API + 16 * counts.worker + 4 * counts.batches;
const yearBytes = of['a-day'] * (365 * of['kept-bytes'] + 30 * of['retained-bytes']);
const singleMs = of['api-ms'] + of['worker-ms'] + of['postgres-ms'] + of['temporal-ms'];
// The retention schedule deletes for up to 20 seconds an hour.
const deletableRows = ((24 * 20) / of['delete-us']) * 1e6;
// Per payout: a delivery and, if receivers respond, at most one failed attempt.
const deletedRows = of['a-day'] * 2;
const walPerSecond = (of.singles + of.batched) * of['wal-bytes'];

const one = (value) => value.toFixed(1);
const line = (name, value, note = '') =>
  console.log(`${name.padEnd(34)}${String(value).padStart(10)}  ${note}`.trimEnd());
const share = (part, count) => line(part, one(parts[part]), count ? `cores, ${count}` : 'cores');

console.log(`Cores, each ${of['percent-busy']} % busy at the peak`);
share('API', `${counts.API} processes`);
share('worker', `${counts.worker} processes`);
share('batches', `${counts.batches} batch workers at the most, and PostgreSQL`);
share('PostgreSQL');
share('Temporal');
line('all', one(Object.values(parts).reduce((sum, part) => sum + part, 0)), 'cores');
line('single payouts a core carries', one(1000 / singleMs), `a second, ${singleMs} ms each`);
line('payouts of batches a core carries', one(1000 / of['batch-ms']), 'a second');
console.log('\nPostgreSQL');
line('connections', connections, connections > 600 ? 'more than max_connections (600)' : 'of 600');
line('size after a year', one(yearBytes / 1e12), 'TB');
line('write-ahead log at the peak', one(walPerSecond / 1e6), 'MB a second');
line('rows that retention deletes', one(deletedRows / 1e6), 'million a day');
line(
  'rows that it can delete',
  one(deletableRows / 1e6),
  deletedRows > deletableRows ? 'million a day: partition by day' : 'million a day: no partitions',
);
console.log('\nTemporal');
line('state transitions at the peak', one(of.singles * of.transitions), 'a second');
line('of each history shard', one((of.singles * of.transitions) / of.shards), 'a second');
line('servers', temporalServers, `of ${of['machine-cores']} cores, at most one for each shard`);
console.log('\nA second region');
line('synchronous: accept takes longer', of['region-rtt-ms'] * 2, 'ms: two commits before the answer');
const lost = ((of.singles + of.batched) * of['region-lag-ms']) / 1000;
line('asynchronous: payouts at stake', one(lost), `that the replica has not seen, ${of['region-lag-ms']} ms behind`);
