import type { BatchCount, BatchRow } from '../db/batches.js';
import type { Acceptance } from '../domain/acceptance.js';
import type { BatchMode } from '../domain/batch.js';
import { formatMinor } from '../domain/money.js';
import { isFinal, type PayoutStatus, payoutStatuses } from '../domain/payout.js';
import { type Refusal, sentenceOf } from '../domain/refusal.js';
import type { ContractObject } from './schemas.js';

/** Renders the objects of a batch, as objects.ts does for all others. */

/** Renders the response to a cancellation: which payouts are canceled, and which were too late to cancel. */
export function canceledBatchObject(
  batch: BatchRow,
  counts: readonly BatchCount[],
  items: readonly { readonly id: string; readonly status: string }[],
) {
  return {
    ...batchObject(batch, counts),
    canceled: items.flatMap(({ id, status }) => (status === 'canceled' ? [id] : [])),
    not_canceled: items.filter(({ status }) => status !== 'canceled'),
  };
}

/** Renders a batch. The counters always add up to `total`: they are counted from the items themselves. */
export function batchObject(
  batch: BatchRow,
  items: readonly BatchCount[],
): ContractObject<'batch'> {
  const countOf = (status: PayoutStatus) =>
    items.filter((item) => item.status === status).reduce((sum, item) => sum + item.count, 0);
  const final = payoutStatuses.filter(isFinal).reduce((sum, status) => sum + countOf(status), 0);
  return {
    object: 'batch',
    id: batch.id,
    status: batch.status,
    mode: batch.mode,
    outcome: batch.outcome,
    paused: batch.pausedAt !== null && batch.status === 'processing',
    counts: {
      total: batch.total,
      pending: countOf('pending'),
      processing: countOf('processing'),
      sent: countOf('sent'),
      settled: countOf('settled'),
      failed: countOf('failed'),
      canceled: countOf('canceled'),
      returned: countOf('returned'),
    },
    progress: { final, percent: Math.floor((final * 100) / batch.total) },
    totals: totalsOf(items),
    created_at: batch.createdAt.toISOString(),
    canceled_at: batch.canceledAt?.toISOString() ?? null,
    completed_at: batch.completedAt?.toISOString() ?? null,
  };
}

/** The outcome that an item of a batch would have. */
export type PreviewedItem =
  | { readonly kind: 'accepted'; readonly acceptance: Acceptance }
  | { readonly kind: 'refused'; readonly index: number; readonly refusal: Refusal }
  | { readonly kind: 'existing' };

/** Renders the outcome that a batch would have: its totals, its fees and every refusal. Nothing is stored. */
export function batchPreviewObject(mode: BatchMode, items: readonly PreviewedItem[]) {
  const accepted = items.flatMap((item) => (item.kind === 'accepted' ? [item.acceptance] : []));
  const refused = items.flatMap((item) => (item.kind === 'refused' ? [item] : []));
  const isRefused = mode === 'all_or_nothing' && refused.length > 0;
  return {
    object: 'batch_preview',
    mode,
    outcome: isRefused ? 'refused' : 'accepted',
    counts: {
      total: items.length,
      accepted: accepted.length,
      refused: refused.length,
      existing: items.length - accepted.length - refused.length,
    },
    totals: totalsOf(accepted.map((acceptance) => ({ ...acceptance, count: 1 }))),
    refusals: refused.map(({ index, refusal }) => {
      const { code, param, expected, received } = refusal;
      return { index, code, param, expected, received, detail: sentenceOf(refusal) };
    }),
  };
}

type CorridorCount = Omit<BatchCount, 'status'>;

/**
 * Renders a batch without counting its items, because a page of batches may have a million of them. `counts`,
 * `progress` and `totals` are null; retrieving the batch returns them.
 */
export function uncountedBatchObject(batch: BatchRow): ContractObject<'batch'> {
  return { ...batchObject(batch, []), counts: null, progress: null, totals: null };
}

/** Returns the totals of the accepted items, one entry per corridor. */
function totalsOf(items: readonly CorridorCount[]) {
  const totals = new Map<string, { items: CorridorCount[]; source: string; destination: string }>();
  for (const item of items) {
    const { sourceCurrency: source, destinationCurrency: destination } = item;
    if (source === null || destination === null || item.sourceMinor === 0n) continue;
    const corridor = totals.get(`${source} ${destination}`) ?? { items: [], source, destination };
    corridor.items.push(item);
    totals.set(`${source} ${destination}`, corridor);
  }
  return [...totals.values()].map(({ items: accepted, source, destination }) => ({
    source_currency: source,
    destination_currency: destination,
    count: accepted.reduce((sum, item) => sum + item.count, 0),
    source_amount: formatMinor(sumOf(accepted.map((item) => item.sourceMinor)), source),
    fee: formatMinor(sumOf(accepted.map((item) => item.feeMinor)), source),
    receive_amount: formatMinor(sumOf(accepted.map((item) => item.receiveMinor)), destination),
  }));
}

function sumOf(amounts: readonly bigint[]): bigint {
  return amounts.reduce((sum, amount) => sum + amount, 0n);
}
