import { setImmediate } from 'node:timers/promises';
import { batchRatesOf } from '../db/batches.js';
import { lockBeneficiariesOf } from '../db/beneficiaries.js';
import { exactlyOne, type Sql } from '../db/client.js';
import { currentOpenings } from '../db/corridorOpenings.js';
import { countUses, lockFundsOf, type OwnedEntry, postEntries } from '../db/ledger.js';
import {
  type AcceptedPayout,
  findRetried,
  type LockedPayout,
  lockPayouts,
  type PayoutRow,
  type RefusedPayout,
  recordAcceptances,
  refusePayouts,
} from '../db/payouts.js';
import { lockQuotesOf, markQuotesUsed } from '../db/quotes.js';
import { currentRatesFor, midOf } from '../db/rates.js';
import { priceOriginOf, termsOfPayouts } from '../db/terms.js';
import {
  type Acceptance,
  type Funds,
  fundInOrder,
  type PricedPayout,
  type PriceFacts,
  priceOf,
  refuseRetry,
} from '../domain/acceptance.js';
import { groupSize } from '../domain/batch.js';
import { orderText } from '../domain/commandRules.js';
import { corridorOf, railNameOf, refuseUnroutable } from '../domain/corridor.js';
import { parseRate } from '../domain/fx.js';
import { acceptEntry } from '../domain/ledger.js';
import { hasConflictingReports } from '../domain/payout.js';
import { isRefusal } from '../domain/refusal.js';
import type { Rail } from '../rails/rail.js';
import { announce } from './announce.js';
import { ownOf } from './cancellation.js';
import { countMoves } from './countMoves.js';
import type { AcceptanceDeps } from './deps.js';
import { owned, type PayoutSnapshot, snapshotOf } from './snapshot.js';

type Decisions = {
  readonly accepted: AcceptedPayout[];
  readonly refused: RefusedPayout[];
  readonly entries: OwnedEntry[];
  readonly quoteUses: { readonly quoteId: string; readonly payoutId: string }[];
};

/** The payouts to decide. A driver limits them to its own; null means any driver. */
type ToDecide = {
  readonly driver: string | null;
  readonly ids: readonly string[];
  /** Age of the workflow that decides them. Each payout counts as at least this old. */
  readonly workflowAgeMs: number;
};

/**
 * Decides the listed pending payouts in order: each is accepted if the funds left by the ones
 * before it cover it. All facts are read under lock; the decision itself is pure.
 */
export async function accept(
  sql: Sql,
  deps: AcceptanceDeps,
  input: ToDecide,
): Promise<readonly PayoutSnapshot[]> {
  const { rows, decisions } = await decideAll(sql, deps, input);
  return write(sql, rows, decisions);
}

/**
 * Decides pending payouts as a unit: either all are accepted, or nothing is written and every
 * refusal is returned. Also returns the payouts that have their own workflows.
 */
export async function acceptTogether(
  sql: Sql,
  deps: AcceptanceDeps,
  ids: readonly string[],
  workflowAgeMs: number,
): Promise<{ readonly refused: readonly RefusedPayout[]; readonly own: readonly LockedPayout[] }> {
  const { rows, decisions } = await decideAll(sql, deps, { driver: null, ids, workflowAgeMs });
  if (decisions.refused.length === 0) await write(sql, rows, decisions);
  return { refused: decisions.refused, own: ownOf(rows) };
}

async function decideAll(
  sql: Sql,
  deps: AcceptanceDeps,
  { driver, ids, workflowAgeMs }: ToDecide,
): Promise<{ readonly rows: readonly LockedPayout[]; readonly decisions: Decisions }> {
  // For a single payout the balance is locked in the same round trip. Hundreds are priced before
  // the balance is locked, so that other transactions do not wait for the pricing.
  const isSingle = ids.length === 1;
  const [read, early] = await Promise.all([
    readFacts(sql, deps, driver, ids),
    isSingle ? lockFundsOf(sql, ids) : undefined,
  ]);
  const priced = await priceAll(deps, read, ids, workflowAgeMs);
  const funds = early ?? (await lockFundsOf(sql, ids));
  return { rows: read.rows, decisions: fundAll(priced, funds) };
}

type Facts = Awaited<ReturnType<typeof readFacts>>;

/** A pending payout with its price or refusal. A priced payout also has a rail and its rates. */
type Priced = PricedPayout & {
  readonly row: LockedPayout;
  readonly rail: Rail | undefined;
  readonly facts: ReturnType<Facts['factsOf']>;
};

async function priceAll(
  { rails }: AcceptanceDeps,
  { rows, factsOf, refusalOf, mustWait }: Facts,
  ids: readonly string[],
  workflowAgeMs: number,
): Promise<readonly Priced[]> {
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const all: Priced[] = [];
  for (const [index, id] of ids.entries()) {
    // Pricing 10,000 payouts takes a second or more: yield, so that heartbeats can be sent.
    if (index % groupSize === groupSize - 1) await setImmediate();
    const row = rowOf.get(id);
    if (row?.status !== 'pending' || mustWait(row)) continue;
    const rail = rails.get(railNameOf(row.mode) ?? '');
    const request = { ...row, ageMs: Math.max(Number(row.ageMs), workflowAgeMs) };
    const unroutable = rail === undefined ? refuseUnroutable(row.mode) : undefined;
    const facts = factsOf(row);
    // A refusal recorded when the payout was requested stands.
    const priced = row.refusal ?? refusalOf(row) ?? unroutable ?? priceOf(request, facts);
    all.push({ id, row, request, facts, priced, rail });
  }
  return all;
}

/** Checks the prices against the funds, in order. All listed payouts belong to one account. */
function fundAll(all: readonly Priced[], funds: Funds): Decisions {
  const results = fundInOrder(all, funds);
  const decisions: Decisions = { accepted: [], refused: [], entries: [], quoteUses: [] };
  for (const [index, { id, row, rail, facts }] of all.entries()) {
    const decided = results[index];
    if (decided === undefined) throw new Error(`${id} was not decided.`);
    if (isRefusal(decided)) {
      decisions.refused.push({ id, refusal: decided });
      continue;
    }
    if (rail === undefined || facts.beneficiary === undefined) {
      throw new Error(`${id} was accepted without a rail or a beneficiary.`);
    }
    const { settleWithinMs } = rail.limits;
    const origin = facts.originOf(decided);
    decisions.entries.push(owned(row, acceptEntry(decided)));
    if (row.quoteId !== null) decisions.quoteUses.push({ quoteId: row.quoteId, payoutId: id });
    const terms = { origin, rail: rail.name, settleWithinMs };
    const beneficiaryVersion = facts.beneficiary.version;
    decisions.accepted.push({ id, acceptance: decided, beneficiaryVersion, ...terms });
  }
  return decisions;
}

/** Reads and locks everything the decisions depend on except the funds, in the global lock order. */
async function readFacts(
  sql: Sql,
  deps: AcceptanceDeps,
  driver: string | null,
  ids: readonly string[],
) {
  // One round trip: the statements are pipelined and run one after another.
  const [rows, quotes, beneficiaries, rates, batches, terms, openings] = await Promise.all([
    lockPayouts(sql, driver, ids),
    lockQuotesOf(sql, ids),
    lockBeneficiariesOf(sql, ids),
    currentRatesFor(sql, deps.rateMaximumAgeMs, ids),
    batchRatesOf(sql, ids),
    termsOfPayouts(sql, ids),
    currentOpenings(sql),
  ]);
  const quoteOf = new Map(quotes.map((quote) => [quote.payoutId, quote]));
  const beneficiaryOf = new Map(beneficiaries.map((found) => [found.payoutId, found]));
  const batchRates = new Map(batches.map((batch) => [batch.id, batch.rates]));
  const ratesOf = ({ batchId }: PayoutRow) =>
    batchId === null ? rates : (batchRates.get(batchId) ?? []);
  // Cached, because exact division is slow and the items of a batch share few currency pairs.
  const pairs = new Map<string, ReturnType<PriceFacts['pairOf']>>();
  const pairFor = (row: PayoutRow, source: string, destination: string) => {
    const name = `${row.batchId} ${source} ${destination}`;
    const known = pairs.get(name);
    if (known !== undefined) return known;
    const held = terms.filter(({ batchId }) => batchId === row.batchId);
    const corridor = corridorOf(held, source, destination);
    const pair = { mid: midOf(ratesOf(row), source, destination), corridor };
    pairs.set(name, pair);
    return pair;
  };
  const [first] = rows;
  // Only a payout decided alone can be a retry of another one.
  const isRetry = first !== undefined && first.retryOf !== null;
  const retried = isRetry ? await findRetried(sql, first.accountId, first.retryOf) : undefined;
  const undecided = new Set(batches.flatMap(({ id, isUndecided }) => (isUndecided ? [id] : [])));
  return {
    rows,
    // If decided alone, it could be paid while the rest of its batch is refused. One on which the rail has
    // reported could be refused although it was paid, so two people decide.
    mustWait: ({ batchId, attentionReason }: PayoutRow) =>
      driver !== null && (undecided.has(batchId ?? '') || hasConflictingReports(attentionReason)),
    refusalOf: ({ id }: PayoutRow) => retried && refuseRetry(id, retried),
    factsOf: (row: PayoutRow) => {
      const quote = quoteOf.get(row.id);
      return {
        quote: quote && { ...quote, rate: parseRate(quote.rate), mid: parseRate(quote.mid) },
        beneficiary: beneficiaryOf.get(row.id),
        openings,
        pairOf: (source: string, destination: string) => pairFor(row, source, destination),
        originOf: ({ sourceCurrency, destinationCurrency }: Acceptance) =>
          quote ??
          priceOriginOf(ratesOf(row), pairFor(row, sourceCurrency, destinationCurrency).corridor),
      };
    },
  };
}

async function write(
  sql: Sql,
  rows: readonly LockedPayout[],
  { accepted, refused, entries, quoteUses }: Decisions,
): Promise<readonly PayoutSnapshot[]> {
  const [, failed] = await Promise.all([
    recordAcceptances(sql, accepted),
    refusePayouts(sql, refused),
    markQuotesUsed(sql, quoteUses),
    countUses(sql, accepted),
    postEntries(sql, entries),
  ]);
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const moved = accepted.map(({ id, acceptance: { sourceCurrency, destinationCurrency } }) => {
    const pair = { sourceCurrency, destinationCurrency };
    return { ...exactlyOne(rowOf.get(id)), ...pair, status: 'processing' } as const;
  });
  countMoves(sql, moved);
  const subscribed = await announce(sql, failed);
  const acceptedOf = new Map(accepted.map((each) => [each.id, each]));
  const failedIds = new Set(failed.map((row) => row.id));
  return rows.map((row) => {
    const now = acceptedOf.get(row.id);
    return {
      ...snapshotOf(row),
      ...(now && { order: orderText({ ...now.acceptance, amount: null }), isAccepted: true }),
      status: now ? 'processing' : failedIds.has(row.id) ? 'failed' : row.status,
      settleInMs: now?.settleWithinMs ?? snapshotOf(row).settleInMs,
      hasPendingDeliveries: subscribed.has(row.id),
    };
  });
}
