// Measures the writes per payout of a batch: row versions, and bytes of write-ahead log per table and index.
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { withBench } from './batch/bench.mjs';
import { batchBody, openCustomer } from './batch/customer.mjs';
import { check, timeWay } from './batch/measure.mjs';

const { values } = parseArgs({
  options: {
    payouts: { type: 'string', default: '10000' },
    warmup: { type: 'string', default: '1000' },
    data: { type: 'string', default: '.corridor/bench' },
    json: { type: 'string' },
  },
});
const [payouts, warmup] = [Number(values.payouts), Number(values.warmup)];

/** Sessions report their statistics within a second of becoming idle. */
const reportedAfterMs = 2_000;

const rowsOf = (sql) => sql`
  select relname as name, n_tup_ins::int as inserted, n_tup_upd::int as updated,
         n_tup_hot_upd::int as hot, n_tup_del::int as deleted
    from pg_stat_user_tables`;

const positionOf = async (sql) => (await sql`select pg_current_wal_insert_lsn()::text as at`)[0].at;

/**
 * Counts log records between two positions by the relation of their first page. Full-page images, which the
 * first change after a checkpoint writes, are counted separately: their number depends on its timing.
 */
const logOf = (sql, from, to) => sql`
  with blocks as (
    select coalesce(t.relname, c.relname) as name,
           case when t.relname is null then '' else c.relname end as index,
           (block_id = 0)::int as first,
           case when block_id = 0 then record_length - sum(block_fpi_length) over (partition by start_lsn)
                else 0 end as length, block_fpi_length as image
      from pg_get_wal_block_info(${from}::pg_lsn, ${to}::pg_lsn) b
      left join pg_class c on pg_relation_filenode(c.oid) = b.relfilenode
      left join pg_index i on i.indexrelid = c.oid
      left join pg_class t on t.oid = i.indrelid)
  select name, index, sum(first)::int as records, sum(length)::float8 as bytes,
         sum(image)::float8 as image_bytes
    from blocks group by name, index order by bytes desc`;

const results = await withBench(values.data, async (bench) => {
  const { database } = bench;
  await database`create extension if not exists pg_walinspect`;
  // Keeps all segments that are to be read.
  await database`alter system set wal_keep_size = '8GB'`;
  await database`select pg_reload_conf()`;
  const customer = await openCustomer(bench, 'rows', payouts + warmup);
  const before = {};
  const prepare = async (count) => {
    const body = batchBody(customer, count);
    return async () => {
      if (count === payouts) {
        await delay(reportedAfterMs);
        await database`checkpoint`;
        before.rows = await rowsOf(database);
        before.position = await positionOf(database);
      }
      await customer.request('POST /v1/batches', body);
    };
  };
  await timeWay({ bench, database, customer, warmup, payouts, prepare });
  await delay(reportedAfterMs);
  const to = await positionOf(database);
  const rows = await rowsOf(database);
  const [{ bytes }] = await database`
    select pg_wal_lsn_diff(${to}::pg_lsn, ${before.position}::pg_lsn)::float8 as bytes`;
  const log = await database.begin(async (sql) => {
    await sql`select set_config('statement_timeout', '0', true), set_config('transaction_timeout', '0', true)`;
    return logOf(sql, before.position, to);
  });
  const { journal } = bench;
  const checked = await check({ bench, database, customer, journal, payouts: payouts + warmup });
  return { before, rows, log, bytes, checked };
});
const { before, rows, log, bytes, checked } = results;
const beforeOf = new Map(before.rows.map((row) => [row.name, row]));
const each = (count) => Number((count / payouts).toFixed(2));
const written = rows.flatMap(({ name, ...counts }) => {
  const start = beforeOf.get(name);
  const [inserted, updated, hot, deleted] = ['inserted', 'updated', 'hot', 'deleted'].map((key) =>
    each(counts[key] - start[key]),
  );
  return inserted + updated + deleted > 0.004 ? [{ name, inserted, updated, hot, deleted }] : [];
});
const logged = log.map(({ name, index, records, bytes: own, imageBytes }) => ({
  ...{ name, index, records: each(records), bytes: Math.round(own / payouts) },
  images: Math.round(imageBytes / payouts),
}));
console.table(written);
const versions = written.reduce((sum, row) => sum + row.inserted + row.updated, 0);
console.log(`${versions.toFixed(2)} row versions a payout`);
console.table(logged.filter((row) => row.bytes + row.images > 1));
const byTable = Object.entries(Object.groupBy(logged, ({ name }) => name)).map(([name, own]) => ({
  name,
  bytes: own.reduce((sum, row) => sum + row.bytes, 0),
  images: own.reduce((sum, row) => sum + row.images, 0),
}));
console.table(byTable.filter((row) => row.bytes + row.images > 1));
const sum = (key) => byTable.reduce((total, row) => total + row[key], 0);
console.log(
  `${Math.round(bytes / payouts)} bytes of log a payout: records ${sum('bytes')}, images of pages ${sum('images')}, the rest commits and locks`,
);
if (checked.problems.length > 0) {
  console.error(checked.problems.join('\n'));
  process.exitCode = 1;
}
if (values.json !== undefined) await writeFile(values.json, JSON.stringify({ written, logged }));
