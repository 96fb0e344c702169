import { setTimeout as delay } from 'node:timers/promises';
import { exactlyOne, isOutage } from '../../src/db/client.js';
import { isUnapplied } from '../../src/db/payouts.js';
import { isFinal, type PayoutStatus } from '../../src/domain/payout.js';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import type { Processes } from '../servers/processes.js';

/** Pause between two looks at what is open, which the database should not feel. */
const pollPauseMs = 250;

/** Five of every hundred items have each of these orders for the bank; the others just settle. */
const orders = [
  'simulate: reject AC04',
  'simulate: duplicate callbacks',
  'simulate: timeout then settle',
  'simulate: delay 2s',
];

/** With `spreadS` the other items settle over that many seconds instead of all at once. */
function referenceOf(index: number, spreadS: number): string {
  const usual = spreadS === 0 ? `Invoice ${index}` : `simulate: delay ${index % spreadS}s`;
  return orders[index % 20] ?? usual;
}

/** A batch on a separate account, with a receiver for all of its events. */
export type OrderedBatch = {
  readonly id: string;
  readonly accountId: string;
  readonly receiver: Receiver;
  /** Resolves when items have this status; rejects if the batch is over first. */
  readonly untilSome: (status: PayoutStatus) => Promise<void>;
  /** Resolves when nothing is open: no item, inbox entry, chunk or webhook delivery. */
  readonly untilOver: (limitMs: number) => Promise<void>;
  /** The result of the batch, without the parts that differ between runs. */
  readonly ending: () => Promise<Ending>;
  /** The number of repeated webhook deliveries that the receiver got. */
  readonly duplicates: () => number;
};

export type Ending = {
  readonly batch: unknown;
  readonly balances: unknown;
  /** In the order of the request. */
  readonly items: readonly ItemEnding[];
  readonly eventsOfBatch: readonly string[];
  /** The number of sequence numbers that no event of the account has. */
  readonly missingSequences: bigint;
};

export type ItemEnding = {
  readonly index: number;
  readonly status: string;
  readonly statusReason: string | null;
  readonly history: readonly string[];
  readonly receiveMinor: bigint | null;
  readonly attentionReason: string | null;
  readonly events: readonly string[];
  readonly entries: readonly string[];
  /** The number of times that the bank has executed the item. */
  readonly transfers: number;
};

/** Requests a batch of this many items of 20.00 USD, and returns as soon as it is accepted. */
export async function startOrderedBatch(
  parts: Processes,
  count: number,
  spreadS = 0,
): Promise<OrderedBatch> {
  const { database, apiUrl } = parts;
  const { account, apiKey } = await createTestAccount(database, {
    funds: { USD: 100_000_000n },
  });
  const client = createClient(apiUrl, apiKey);
  const receiver = await startReceiver();
  await client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events: ['*'] } });
  const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const payouts = Array.from({ length: count }, (_, index) => ({
    source_currency: 'USD',
    amount: '2000',
    beneficiary: payee,
    reference: referenceOf(index, spreadS),
  }));
  const answer = await client('POST /v1/batches', { json: { payouts }, idempotencyKey: 'once' });
  if (answer.status !== 202)
    throw new Error(`The batch request was answered with ${answer.status}.`);
  const id = textOf(answer, 'id');

  return {
    id,
    accountId: account.id,
    receiver,
    untilSome: async (wanted) => {
      await eventually(`${id} has items that are ${wanted}`, 180_000, () =>
        whenDatabaseAnswers(async () => {
          const rows = await database<{ status: PayoutStatus }[]>`
            select distinct status from payouts where batch_id = ${id}`;
          if (rows.every(({ status }) => isFinal(status)))
            throw new Error(`Every item of ${id} is already final.`);
          return rows.some(({ status }) => status === wanted) ? true : undefined;
        }),
      );
    },
    untilOver: async (limitMs) => {
      let pending: object = {};
      await eventually(`${id} is over`, limitMs, () =>
        whenDatabaseAnswers(async () => {
          pending = await pendingOf(parts, id, account.id);
          const isOver = Object.values(pending).every((count) => count === 0);
          return isOver || delay(pollPauseMs);
        }),
      ).catch((error: unknown) => {
        throw new Error(`Still pending: ${JSON.stringify(pending)}`, { cause: error });
      });
    },
    ending: async () => ({
      batch: stripped((await client(`GET /v1/batches/${id}`)).body),
      balances: (await client('GET /v1/balances')).body,
      items: await itemEndings(parts, id),
      ...(await eventEndings(parts, id, account.id)),
    }),
    duplicates: () => receiver.received.length - distinctEvents(receiver).size,
  };
}

/** The expected result of an undisturbed batch of this many items, derived from its orders alone. */
export function expectedItems(count: number): readonly Partial<ItemEnding>[] {
  return Array.from({ length: count }, (_, index) => {
    return index % 20 === orders.indexOf('simulate: reject AC04')
      ? {
          index,
          status: 'failed',
          statusReason: 'AC04',
          attentionReason: null,
          events: ['payout.failed'],
          entries: ['accept', 'release'],
          transfers: 0,
        }
      : {
          index,
          status: 'settled',
          statusReason: null,
          attentionReason: null,
          history: ['pending', 'processing', 'sent', 'settled'],
          events: ['payout.sent', 'payout.settled'],
          entries: ['accept', 'settle'],
          transfers: 1,
        };
  });
}

/** The IDs of the events that the receiver got at least once. */
export function distinctEvents({ received }: Receiver): ReadonlySet<string> {
  return new Set(received.map(({ headers }) => headers['webhook-id'] ?? ''));
}

/** Returns undefined while the database is down, so that callers that poll just continue. */
async function whenDatabaseAnswers<T>(query: () => Promise<T>): Promise<T | undefined> {
  try {
    return await query();
  } catch (error) {
    if (isOutage(error)) return undefined;
    throw error;
  }
}

type Pending = {
  readonly batches: number;
  readonly items: number;
  readonly chunks: number;
  readonly inbox?: number;
  readonly deliveries?: number;
  readonly groups?: number;
};

/** Counts what is open. The slowest query comes last, and is skipped while anything before it is open. */
async function pendingOf(parts: Processes, batchId: string, accountId: string): Promise<Pending> {
  const { database } = parts;
  const [early] = await database<Pick<Pending, 'batches' | 'items' | 'chunks'>[]>`
    select
      (select count(*)::int from batches
        where id = ${batchId} and (status <> 'completed' or open <> 0)) as batches,
      (select count(*)::int from payouts
        where batch_id = ${batchId} and status not in ('settled', 'failed')) as items,
      (select count(*)::int from batch_chunks
        where batch_id = ${batchId} and wake_at is not null) as chunks`;
  const first = exactlyOne(early);
  if (Object.values(first).some((count) => count > 0)) return first;
  const [late] = await database<Pick<Pending, 'inbox' | 'deliveries' | 'groups'>[]>`
    select
      (select count(*)::int from rail_inbox i join payouts p on p.id = i.payout_id
        where p.batch_id = ${batchId} and ${isUnapplied(database)}) as inbox,
      (select count(*)::int from deliveries d join events e on e.id = d.event_id
        where e.account_id = ${accountId} and d.status <> 'delivered') as deliveries,
      (select count(*)::int from delivery_groups where account_id = ${accountId}) as groups`;
  return { ...first, ...exactlyOne(late) };
}

async function itemEndings(
  { database, transfers }: Processes,
  batchId: string,
): Promise<readonly ItemEnding[]> {
  const sent = new Map<string, number>();
  for (const key of await transfers()) sent.set(key, (sent.get(key) ?? 0) + 1);
  const rows = await database<(Omit<ItemEnding, 'transfers'> & { id: string })[]>`
    select p.id, p.batch_index as index, p.status, p.status_reason,
           array_remove(array['pending', case when p.processing_since is not null then 'processing' end,
             case when p.sent_since is not null then 'sent' end,
             case when p.settled_since is not null then 'settled' end,
             case when p.failed_since is not null then 'failed' end,
             case when p.canceled_since is not null then 'canceled' end,
             case when p.returned_since is not null then 'returned' end], null) as history,
           p.receive_minor, p.attention_reason,
           array(select type from events e
                  where e.subject_id = p.id and e.type like 'payout.%' order by sequence) as events,
           array(select kind from ledger_entries l
                  where l.payout_id = p.id order by kind) as entries
      from payouts p where p.batch_id = ${batchId} order by p.batch_index`;
  return rows.map(({ id, ...row }) => ({ ...row, transfers: sent.get(id) ?? 0 }));
}

async function eventEndings({ database }: Processes, batchId: string, accountId: string) {
  const ofBatch = await database<{ type: string }[]>`
    select type from events
     where account_id = ${accountId} and subject_id = ${batchId}`;
  const [numbers] = await database<{ missing: bigint }[]>`
    select max(sequence) - count(*) as missing from events where account_id = ${accountId}`;
  return {
    eventsOfBatch: ofBatch.map(({ type }) => type),
    missingSequences: numbers?.missing ?? -1n,
  };
}

/** An answer without its ID and times. */
function stripped(body: Readonly<Record<string, unknown>>): object {
  const timed = Object.entries(body).filter(([name]) => name !== 'id' && !name.endsWith('_at'));
  return Object.fromEntries(timed);
}
