// The process of the floor: receives the batch and the bank's callbacks over HTTP and runs the activities.
// It validates nothing, does not survive a crash and knows only one corridor.
import { createHmac, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Client } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';
import { Pool } from 'undici';
import { connectDatabase } from '../../dist/src/db/client.js';
import { createSandboxCallbacks } from '../../dist/src/rails/sandbox/callback.js';
import { createSandboxRail } from '../../dist/src/rails/sandbox/connector.js';
import { serve } from './serve.mjs';

const env = process.env;
const groupSize = 500;
const parallel = 16;
const sql = connectDatabase({ url: env.DATABASE_URL, poolSize: 8, applicationName: 'floor' });
const rail = createSandboxRail({ url: env.SANDBOX_BANK_URL, apiToken: env.SANDBOX_BANK_TOKEN });
const callbacks = createSandboxCallbacks([env.SANDBOX_BANK_CALLBACK_SECRET]);
const sink = new Pool(env.SINK_URL, { connections: parallel });
const secret = randomBytes(32);
const beneficiary = JSON.parse(env.BENEFICIARY);
const newId = (prefix) => `${prefix}_${randomBytes(16).toString('hex')}`;

/** 10.00 dollars less a fee of 0.50, at 0.9 euros. It only matters that something is computed. */
function price(amount) {
  const fee = amount / 20n;
  return { fee, net: amount - fee, receive: ((amount - fee) * 9n) / 10n };
}

/** Returns fields of rows as arrays, for `unnest`. */
const lists = (rows, ...names) => names.map((name) => rows.map((row) => String(row[name])));

async function post(tx, kind, rows, transfers) {
  const ids = lists(rows, 'id')[0];
  const made = transfers.flatMap(([from, to, currency, amountOf]) =>
    rows.map((row) => ({ id: row.id, from, to, currency, amount: amountOf(row) })),
  );
  const [owners, froms, tos, currencies, amounts] = lists(
    ...[made, 'id', 'from', 'to', 'currency', 'amount'],
  );
  await tx`
    with entries as (
      insert into ledger_entries (payout_id, kind) select unnest(${ids}::text[]), ${kind}
      returning id, payout_id)
    insert into ledger_transfers (entry_id, from_id, to_id, currency, amount)
    select e.id, t.from_id, t.to_id, t.currency, t.amount
      from unnest(${owners}::text[], ${froms}::text[]::bigint[], ${tos}::text[]::bigint[],
                  ${currencies}::text[], ${amounts}::text[]::bigint[])
             as t (payout_id, from_id, to_id, currency, amount)
      join entries e using (payout_id)`;
}

/** Writes and returns an event per payout. */
async function announce(tx, type, rows) {
  const [{ last }] = await tx`
    update accounts set sequence = sequence + ${rows.length} returning sequence as last`;
  const first = Number(last) - rows.length + 1;
  const events = rows.map((row, index) => ({
    ...{ id: newId('evt'), sequence: first + index, subject: row.id },
    data: JSON.stringify({ ...row, status: type.split('.')[1], requestedAt: new Date() }, text),
  }));
  const [ids, sequences, subjects, data] = lists(events, 'id', 'sequence', 'subject', 'data');
  await tx`
    insert into events (id, account_id, sequence, type, subject_id, data)
    select t.id, ${env.ACCOUNT_ID}, t.sequence, ${type}, t.subject_id, t.data::json
      from unnest(${ids}::text[], ${sequences}::text[]::bigint[], ${subjects}::text[], ${data}::text[])
             as t (id, sequence, subject_id, data)`;
  return events;
}

/** JSON replacer that writes amounts as text. */
const text = (_, value) => (typeof value === 'bigint' ? String(value) : value);

const inGroup = (group) => sql`
  batch_index >= ${group * groupSize} and batch_index < ${(group + 1) * groupSize}`;

const activities = {
  accept: (group) =>
    sql.begin(async (tx) => {
      const rows = await tx`select * from payouts where ${inGroup(group)} for no key update`;
      const priced = rows.map((row) => ({ ...row, ...price(row.amount) }));
      const total = rows.reduce((sum, { amount }) => sum + amount, 0n);
      await tx`update accounts set balance = balance - ${total}`;
      const [ids, fees, nets, receives] = lists(priced, 'id', 'fee', 'net', 'receive');
      await tx`
        update payouts p set status = 'processing', fee = t.fee, net = t.net, receive = t.receive,
               rate = 0.9
          from unnest(${ids}::text[], ${fees}::text[]::bigint[], ${nets}::text[]::bigint[],
                      ${receives}::text[]::bigint[]) as t (id, fee, net, receive)
         where p.id = t.id`;
      await post(tx, 'accept', priced, [[1, 2, 'USD', ({ amount }) => amount]]);
    }),
  pay: async (group) => {
    const rows = await sql`select * from payouts where ${inGroup(group)}`;
    const answers = await rail.submit(
      rows.map(({ id, receive, reference }) => ({
        ...{ key: id, amountMinor: receive, currency: 'EUR', beneficiary },
        remittance: reference,
      })),
    );
    const wrong = answers.find(({ kind }) => kind !== 'accepted');
    if (wrong !== undefined) throw new Error(`The bank has answered ${wrong.kind}.`);
    await sql.begin(async (tx) => {
      const [ids] = lists(rows, 'id');
      await tx`update payouts set status = 'sent' where id = any (${ids})`;
      await announce(tx, 'payout.sent', rows);
    });
    await settleAll(new Map(rows.map((row) => [row.id, row])));
  },
};

/** Settles payouts as the bank reports them, and delivers their events while waiting for the rest. */
async function settleAll(open) {
  const delivered = [];
  while (open.size > 0) {
    const settled = await sql.begin(async (tx) => {
      const found = await tx`
        select id, payout_id from inbox
         where payout_id = any (${[...open.keys()]}) and applied_at is null`;
      const rows = found.map(({ payoutId }) => open.get(payoutId));
      if (rows.length === 0) return [];
      const [ids] = lists(rows, 'id');
      const [inbox] = lists(found, 'id');
      await tx`update inbox set applied_at = now() where id = any (${inbox}::text[]::bigint[])`;
      await tx`update payouts set status = 'settled', settled_at = now() where id = any (${ids})`;
      await post(tx, 'settle', rows, [
        [2, 3, 'USD', ({ net }) => net],
        [2, 4, 'USD', ({ fee }) => fee],
        [3, 5, 'EUR', ({ receive }) => receive],
        [3, 6, 'EUR', () => 1n],
      ]);
      const events = await announce(tx, 'payout.settled', rows);
      await tx`insert into deliveries (event_id) select unnest(${lists(events, 'id')[0]}::text[])`;
      for (const id of ids) open.delete(id);
      return events;
    });
    if (settled.length > 0) delivered.push(deliver(settled));
    else await delay(50);
  }
  await Promise.all(delivered);
}

async function deliver(events) {
  const left = [...events];
  const lane = async () => {
    for (let event = left.pop(); event !== undefined; event = left.pop()) {
      const { id, data } = event;
      const body = `{"id":"${id}","type":"payout.settled","data":${data}}`;
      const signature = createHmac('sha256', secret).update(`${id}.${body}`).digest('base64');
      const { body: answer } = await sink.request({
        ...{ method: 'POST', path: '/floor', body },
        headers: { 'content-type': 'application/json', 'webhook-signature': `v1,${signature}` },
      });
      await answer.dump();
    }
  };
  await Promise.all(Array.from({ length: parallel }, lane));
  await sql`
    update deliveries set status = 'delivered', delivered_at = now()
     where event_id = any (${lists(events, 'id')[0]})`;
}

let taken = 0;

async function takeBatch(body) {
  const items = JSON.parse(body.toString('utf8')).payouts;
  const rows = items.map((item, index) => ({ ...item, id: newId('po'), index: taken + index }));
  const [ids, indexes, beneficiaries, amounts, references] = lists(
    ...[rows, 'id', 'index', 'beneficiary', 'amount', 'reference'],
  );
  await sql`
    insert into payouts (id, account_id, batch_index, status, beneficiary, source_currency, amount, reference)
    select t.id, ${env.ACCOUNT_ID}, t.index, 'pending', t.beneficiary, 'USD', t.amount, t.reference
      from unnest(${ids}::text[], ${indexes}::text[]::int[], ${beneficiaries}::text[],
                  ${amounts}::text[]::bigint[], ${references}::text[])
             as t (id, index, beneficiary, amount, reference)`;
  const firstGroup = taken / groupSize;
  taken += Math.ceil(items.length / groupSize) * groupSize;
  await client.workflow.start('floor', {
    ...{ workflowId: newId('floor'), taskQueue: env.TASK_QUEUE },
    args: [{ firstGroup, groups: Math.ceil(items.length / groupSize) }],
  });
  return { status: 202 };
}

async function takeCallback(body, headers) {
  const events = callbacks.parseCallback({
    ...{ body, header: (name) => headers[name] ?? '', receivedAt: new Date() },
  });
  const settled = events.filter(({ report }) => report.kind === 'settled');
  const facts = settled.map(({ report }) => JSON.stringify(report, text));
  const [ids, keys] = lists(settled, 'id', 'key');
  await sql`
    insert into inbox (event_id, payout_id, fact)
    select t.id, t.key, t.fact::jsonb
      from unnest(${ids}::text[], ${keys}::text[], ${facts}::text[]) as t (id, key, fact)
    on conflict do nothing`;
  return { status: 200 };
}

Runtime.install({ logger: new DefaultLogger('WARN'), shutdownSignals: [] });
const connection = await NativeConnection.connect({ address: env.TEMPORAL_ADDRESS });
const client = new Client({ connection, namespace: env.TEMPORAL_NAMESPACE });
const worker = await Worker.create({
  ...{ connection, namespace: env.TEMPORAL_NAMESPACE, taskQueue: env.TASK_QUEUE, activities },
  workflowsPath: fileURLToPath(new URL('./floorWorkflow.mjs', import.meta.url)),
});
for (const end of ['disconnect', 'SIGTERM']) process.once(end, () => process.exit(0));
serve({ '/payouts': takeBatch, '/rails/sandbox/callbacks': takeCallback });
await worker.run();
