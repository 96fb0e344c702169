import type { Sql } from '../db/client.js';
import { postEntries, postedEntries } from '../db/ledger.js';
import { type LockedPayout, lockPayouts, movePayouts, type PayoutRow } from '../db/payouts.js';
import { type InboxRow, markApplied, unprocessedEvents } from '../db/railInbox.js';
import type { FactRules, PayoutFact, PayoutState } from '../domain/factEffect.js';
import { parseRate } from '../domain/fx.js';
import type { AcceptedAmounts } from '../domain/ledger.js';
import { type Progress, progressOf } from '../domain/progress.js';
import { reportFromJson } from '../domain/railReport.js';
import { announce } from './announce.js';
import { owned, type PayoutSnapshot, park, snapshotOf } from './snapshot.js';

/**
 * Applies facts to payouts: first those in the inbox, then the caller's, because a release must not
 * precede a callback that contradicts it. Only the caller's `accepted` goes first, since the order came
 * before any callback, and its `settled` or `returned` goes before a rejection. Moves, postings, events and
 * inbox marks are part of the caller's transaction.
 */
export async function applyFacts(
  sql: Sql,
  rules: FactRules,
  { driver, ids }: { readonly driver: string | null; readonly ids: readonly string[] },
  supplied: ReadonlyMap<string, PayoutFact> = new Map(),
): Promise<readonly PayoutSnapshot[]> {
  const [rows, events, posted] = await Promise.all([
    lockPayouts(sql, driver, ids),
    unprocessedEvents(sql, ids),
    postedEntries(sql, ids),
  ]);
  const eventsOf = Map.groupBy(events, ({ payoutId }) => payoutId);
  const progress = rows.map((row) => {
    const inbox = eventsOf.get(row.id) ?? [];
    const direct = supplied.get(row.id);
    const facts = inbox.map(({ report }): PayoutFact => reportFromJson(report));
    const place = placeOf(direct, facts);
    if (direct !== undefined) facts.splice(place, 0, direct);
    const applied = applyTo(row, correctedIn(row, posted), facts, rules);
    return { row, ...applied, ...outcomesOf(inbox, place, applied) };
  });
  const moved = await moveAll(sql, progress);
  const latestOf = new Map(moved.map((row) => [row.id, row]));
  const snapshots = rows.map((row) => snapshotOf({ ...row, ...latestOf.get(row.id) }));
  const found = new Map(progress.map(({ row, attention }) => [row.id, attention]));
  const entries = progress
    .flatMap((applied) => applied.entries.map((entry) => owned(applied.row, entry)))
    .filter(({ payoutId, entry }) => !posted.has(`${payoutId} ${entry.kind}`));
  const unmoved = progress.flatMap(({ others }) => others);
  const [parked] = await Promise.all([
    park(sql, snapshots, ({ id }) => found.get(id)),
    markApplied(sql, unmoved),
    // Last, because it locks the balances, which other transactions wait for.
    postEntries(sql, entries),
  ]);
  const subscribed = await announce(sql, moved);
  return parked.map((snapshot) => ({
    ...snapshot,
    hasPendingDeliveries: subscribed.has(snapshot.id),
    hasUnprocessedEvents: false,
  }));
}

type Outcome = { readonly id: bigint; readonly outcome: string };
type AppliedFacts = Progress & {
  readonly row: LockedPayout;
  /** The inbox facts that moved the payout, and those that did not. */
  readonly movers: readonly Outcome[];
  readonly others: readonly Outcome[];
};

function correctedIn(row: LockedPayout, posted: ReadonlySet<string>): PayoutState['corrected'] {
  if (posted.has(`${row.id} reversed late_payment`)) return 'late payment';
  if (posted.has(`${row.id} reversed settle`)) return 'settlement';
  return posted.has(`${row.id} correction`) ? 'other' : 'nothing';
}

function applyTo(
  row: LockedPayout,
  corrected: PayoutState['corrected'],
  facts: readonly PayoutFact[],
  rules: FactRules,
): Progress {
  if (row.sourceMinor !== null) {
    return progressOf({ ...row, rate: parseRate(row.rate), corrected }, facts, rules);
  }
  const detail = `The rail reports on a payout that is ${row.status} and was never accepted.`;
  return {
    moves: [],
    entries: [],
    attention: facts.length === 0 ? null : { reason: 'contradiction', detail },
    outcomes: facts.map(() => 'contradiction'),
  };
}

/** Returns the caller's place among the facts of the inbox, which has its rejections last. */
function placeOf(direct: PayoutFact | undefined, inbox: readonly PayoutFact[]): number {
  if (direct?.kind === 'accepted') return 0;
  const isPayment = direct?.kind === 'settled' || direct?.kind === 'returned';
  return isPayment ? inbox.findLastIndex(({ kind }) => kind !== 'rejected') + 1 : inbox.length;
}

/**
 * Returns the outcome of each inbox fact. The caller's fact is at index `place` of all facts. The outcome
 * of a fact that moved the payout is the new status.
 */
function outcomesOf(inbox: readonly InboxRow[], place: number, { outcomes, moves }: Progress) {
  const isMove = new Set<string>(moves.map(({ status }) => status));
  const movers: Outcome[] = [];
  const others: Outcome[] = [];
  for (const [index, { id }] of inbox.entries()) {
    const outcome = outcomes[index < place ? index : index + 1] ?? 'nothing new';
    (isMove.has(outcome) ? movers : others).push({ id, outcome });
  }
  return { movers, others };
}

/** Moves every payout along its own path. One statement writes the next status of all of them. */
async function moveAll(sql: Sql, progress: readonly AppliedFacts[]): Promise<readonly PayoutRow[]> {
  const rows = progress.map(({ row }) => row);
  const moved: PayoutRow[] = [];
  // The longest path is processing → sent → settled → returned.
  for (let depth = 0; depth < 3; depth += 1) {
    const moves = progress.flatMap((applied) => {
      const move = applied.moves[depth];
      if (move === undefined) return [];
      // The first move marks all inbox facts that moved the payout as applied.
      const facts = depth === 0 ? applied.movers : [];
      return [{ id: applied.row.id, ...move, appliedFacts: facts.map(({ id }) => id) }];
    });
    moved.push(...(await movePayouts(sql, rows, moves)));
  }
  return moved;
}

/** Returns the amounts of an accepted payout, which never change. */
export function amountsOf(row: PayoutRow): AcceptedAmounts {
  if (row.sourceMinor === null) throw new Error(`Payout ${row.id} was never accepted.`);
  return { ...row, rate: parseRate(row.rate) };
}
