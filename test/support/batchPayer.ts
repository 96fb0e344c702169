import { z } from 'zod';
import { pauseBatch } from '../../src/db/batches.js';
import { chunksOf } from '../../src/db/chunks.js';
import { exactlyOne, transaction } from '../../src/db/client.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import { wakeChunks } from '../../src/temporal/wakePayout.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from './client.js';
import { createTestAccount } from './database.js';
import { eventually } from './eventually.js';
import { beneficiary } from './requestPayout.js';
import type { TestSystem } from './system.js';

/** An item of a batch as it is sent. */
export type Item = Readonly<Record<string, string>>;

/** An account with USD of its own, so that what moves on it is one test's doing. */
export type BatchPayer = {
  readonly client: ApiClient;
  readonly apiKey: string;
  readonly accountId: string;
  /** An item of 20.00 USD to Germany with this remittance text, and whatever differs from that. */
  readonly item: (reference: string, other?: Item) => Item;
  /** Sends a batch, where nothing but 202 will do: its id. */
  readonly send: (
    payouts: readonly Item[],
    mode?: 'best_effort' | 'all_or_nothing',
  ) => Promise<string>;
  /** The account's USD, in minor units. */
  readonly balance: () => Promise<{ readonly available: bigint; readonly held: bigint }>;
  /** The types of the account's events with how many there are. */
  readonly events: () => Promise<Readonly<Record<string, number>>>;
};

export async function openBatchPayer(system: TestSystem, fundsMinor: bigint): Promise<BatchPayer> {
  const { database } = system;
  const { account, apiKey } = await createTestAccount(database, { funds: { USD: fundsMinor } });
  const client = createClient(system.apiUrl, apiKey);
  const stored = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  return {
    client,
    apiKey,
    accountId: account.id,
    item: (reference, other = {}) => ({
      source_currency: 'USD',
      amount: '2000',
      beneficiary: stored,
      reference,
      ...other,
    }),
    send: async (payouts, mode = 'best_effort') => {
      const answer = await client('POST /v1/batches', { json: { payouts, mode } });
      if (answer.status === 202) return textOf(answer, 'id');
      throw new Error(`answered ${answer.status} ${textOf(answer, 'detail')}`);
    },
    balance: async () => {
      const [row] = await database<{ available: bigint; held: bigint }[]>`
        select sum(amount_minor) filter (where kind = 'available')::bigint as available,
               coalesce(sum(amount_minor) filter (where kind = 'held'), 0)::bigint as held
          from ledger_balances where account_id = ${account.id} and currency = 'USD'`;
      return exactlyOne(row);
    },
    events: async () => {
      const rows = await database<{ type: string; count: number }[]>`
        select type, count(*)::int as count from events where account_id = ${account.id}
         group by type`;
      return Object.fromEntries(rows.map(({ type, count }) => [type, count]));
    },
  };
}

const batchShape = z.object({
  id: z.string(),
  status: z.string(),
  outcome: z.string().nullable(),
  paused: z.boolean(),
  counts: z.record(z.string(), z.number()),
  totals: z.array(z.record(z.string(), z.union([z.string(), z.number()]))),
});
export type Batch = z.infer<typeof batchShape>;

export function batchIn(answer: ApiAnswer): Batch {
  return batchShape.parse(answer.body);
}

/** The counters but for the total and for those that are zero. */
export function countsOf({ counts }: Batch): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries(counts).filter(([name, count]) => name !== 'total' && count > 0),
  );
}

/** More than the slowest batch of these tests takes on a busy machine. */
const patienceMs = 40_000;

/** The batch as soon as it is so; whenever it is looked at, its counters have to add up. */
export function untilBatch(
  client: ApiClient,
  id: string,
  isSo: (batch: Batch) => boolean = ({ status }) => status !== 'processing',
): Promise<Batch> {
  return eventually(`the batch ${id}`, patienceMs, async () => {
    const batch = batchIn(await client(`GET /v1/batches/${id}`));
    const { total, ...others } = batch.counts;
    const sum = Object.values(others).reduce((all, count) => all + count, 0);
    if (sum !== total) throw new Error(`The counters of ${id} are ${JSON.stringify(batch.counts)}`);
    return isSo(batch) ? batch : undefined;
  });
}

/** The payouts of a batch as they stand, in the order of the request. */
export function rowsOf({ database }: TestSystem, batchId: string): Promise<readonly PayoutRow[]> {
  return database<PayoutRow[]>`
    select * from payouts where batch_id = ${batchId} order by batch_index`;
}

/** The rows as soon as they are so. */
export function untilRows(
  system: TestSystem,
  batchId: string,
  isSo: (rows: readonly PayoutRow[]) => boolean,
): Promise<readonly PayoutRow[]> {
  return eventually(`the items of ${batchId}`, patienceMs, async () => {
    const rows = await rowsOf(system, batchId);
    return isSo(rows) ? rows : undefined;
  });
}

/** Sends a batch that is paused before one of its items is decided: its id. */
export function sendPaused(
  system: TestSystem,
  payer: BatchPayer,
  payouts: readonly Item[],
): Promise<string> {
  return transaction(system.database, async (sql) => {
    // Nothing can be decided while the balance is locked.
    await sql`
      select from ledger_balances where account_id = ${payer.accountId} for no key update`;
    const id = await payer.send(payouts);
    await pauseBatch(system.database, id);
    return id;
  });
}

/** Waits until the chunks of a batch have done all they can and only wait for news. */
export function untilAtRest({ database }: TestSystem, batchId: string): Promise<true> {
  return eventually(`the chunks of ${batchId} rest`, patienceMs, async () => {
    const [row] = await database<{ rest: boolean }[]>`
      select bool_and(waiting) as rest from batch_chunks where batch_id = ${batchId}`;
    return row?.rest === true ? true : undefined;
  });
}

/** Has the chunks of a batch look at their rows again. */
export async function wakeBatch({ database, temporal }: TestSystem, batchId: string) {
  const failures = await wakeChunks(temporal, await chunksOf(database, batchId));
  if (failures.length > 0) throw new Error(`${failures.length} chunks could not be woken.`);
}

/** What the bank has done under each key, but for who has acknowledged what. */
export async function journalByKey({
  bank,
}: TestSystem): Promise<ReadonlyMap<string, readonly string[]>> {
  const lines = (await bank.journal()).filter(({ type }) => type !== 'acknowledged');
  const byKey = new Map<string, string[]>();
  for (const { key = '', type } of lines) byKey.set(key, [...(byKey.get(key) ?? []), type]);
  return byKey;
}
