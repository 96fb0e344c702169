import { batchRatesOf } from '../db/batches.js';
import { shareBeneficiariesOf } from '../db/beneficiaries.js';
import type { Sql } from '../db/client.js';
import { lockBalancesOf, type OwnedEntry, postEntries } from '../db/ledger.js';
import {
  type AcceptedPayout,
  freezePayouts,
  type LockedPayout,
  lockPayouts,
  type PayoutRow,
  type RefusedPayout,
  refusePayouts,
} from '../db/payouts.js';
import { lockQuotesOf, useQuotes } from '../db/quotes.js';
import { currentRates, midOf } from '../db/rates.js';
import { type Acceptance, type Asked, decide, type Facts } from '../domain/acceptance.js';
import { parseRate } from '../domain/fx.js';
import { acceptEntry } from '../domain/ledger.js';
import { isRefusal, type Refusal, refuse } from '../domain/refusal.js';
import type { Rail } from '../rails/rail.js';
import type { Rails } from '../rails/registry.js';
import { announce } from './announcement.js';
import { owned, type PayoutStep, stepOf } from './step.js';

export type AcceptanceDeps = { readonly rails: Rails; readonly rateMaximumAgeMs: number };

type Decisions = {
  readonly accepted: AcceptedPayout[];
  readonly refused: RefusedPayout[];
  readonly usedQuotes: Map<string, string>;
};

/**
 * Decides the pending payouts of the list in its order: each is taken if it fits what the
 * ones before it have left. Everything is read under its lock, decided purely, and written.
 */
export async function accept(
  sql: Sql,
  deps: AcceptanceDeps,
  driver: string,
  ids: readonly string[],
  workflowAgeMs: number,
): Promise<readonly PayoutStep[]> {
  const read = await readFacts(sql, deps, driver, ids);
  return write(sql, read.rows, decideAll(deps, read, ids, workflowAgeMs));
}

/**
 * Decides pending payouts as one: all are accepted, or none is and every refusal is returned,
 * with nothing written.
 */
export async function acceptTogether(
  sql: Sql,
  deps: AcceptanceDeps,
  ids: readonly string[],
  workflowAgeMs: number,
): Promise<readonly RefusedPayout[]> {
  const read = await readFacts(sql, deps, null, ids);
  const decisions = decideAll(deps, read, ids, workflowAgeMs);
  if (decisions.refused.length === 0) await write(sql, read.rows, decisions);
  return decisions.refused;
}

type ReadFacts = Awaited<ReturnType<typeof readFacts>>;

function decideAll(
  deps: AcceptanceDeps,
  read: ReadFacts,
  ids: readonly string[],
  workflowAgeMs: number,
): Decisions {
  const rowOf = new Map(read.rows.map((row) => [row.id, row]));
  const decisions: Decisions = { accepted: [], refused: [], usedQuotes: new Map() };
  for (const id of ids) {
    const row = rowOf.get(id);
    if (row === undefined || row.status !== 'pending') continue;
    const rail = railFor(deps.rails, row);
    if (rail === undefined) {
      decisions.refused.push({ id, refusal: noRail(row) });
      continue;
    }
    const decided = decideRow(row, read, decisions, workflowAgeMs);
    if (isRefusal(decided)) {
      decisions.refused.push({ id, refusal: decided });
      continue;
    }
    read.spend(row, decided);
    if (row.quoteId !== null) decisions.usedQuotes.set(row.quoteId, id);
    const { settleWithinMs } = rail.limits;
    decisions.accepted.push({ id, acceptance: decided, rail: rail.name, settleWithinMs });
  }
  return decisions;
}

/** What was refused before, at the request, stays refused. */
function decideRow(
  row: LockedPayout,
  read: ReadFacts,
  { usedQuotes }: Decisions,
  workflowAgeMs: number,
): Acceptance | Refusal {
  return row.refusal ?? decide(askedOf(row, workflowAgeMs), read.factsOf(row, usedQuotes));
}

/** Everything the decisions look at, locked in the order that holds everywhere. */
async function readFacts(
  sql: Sql,
  deps: AcceptanceDeps,
  driver: string | null,
  ids: readonly string[],
) {
  // One round trip: the statements are sent together and run one after another.
  const [rows, quotes, beneficiaries, balances, rates, batches] = await Promise.all([
    lockPayouts(sql, driver, ids),
    lockQuotesOf(sql, ids),
    shareBeneficiariesOf(sql, ids),
    lockBalancesOf(sql, ids),
    currentRates(sql, deps.rateMaximumAgeMs),
    batchRatesOf(sql, ids),
  ]);
  const quoteOf = new Map(quotes.map((quote) => [quote.payoutId, quote]));
  const beneficiaryOf = new Map(beneficiaries.map((found) => [found.payoutId, found]));
  const funds = new Map(balances.map((b) => [`${b.accountId} ${b.currency}`, b.availableMinor]));
  const batchRates = new Map(batches.map((batch) => [batch.id, batch.rates]));
  const availableOf = (row: PayoutRow, currency: string) =>
    funds.get(`${row.accountId} ${currency}`) ?? 0n;
  const ratesOf = ({ batchId }: PayoutRow) =>
    batchId === null ? rates : (batchRates.get(batchId) ?? []);
  return {
    rows,
    /** The facts for one payout; a quote may have been used by one before it in the list. */
    factsOf: (row: PayoutRow, usedQuotes: ReadonlyMap<string, string>): Facts => {
      const quote = quoteOf.get(row.id);
      return {
        quote: quote && {
          ...quote,
          rate: parseRate(quote.rate),
          mid: parseRate(quote.mid),
          usedBy: quote.usedBy ?? usedQuotes.get(quote.id) ?? null,
        },
        beneficiary: beneficiaryOf.get(row.id),
        midOf: (source, destination) => midOf(ratesOf(row), source, destination),
        availableOf: (currency) => availableOf(row, currency),
      };
    },
    /** Takes an accepted amount from what the next payouts of the list may use. */
    spend: (row: PayoutRow, { sourceCurrency, sourceMinor }: Acceptance): void => {
      const left = availableOf(row, sourceCurrency) - sourceMinor;
      funds.set(`${row.accountId} ${sourceCurrency}`, left);
    },
  };
}

async function write(
  sql: Sql,
  rows: readonly LockedPayout[],
  { accepted, refused, usedQuotes }: Decisions,
): Promise<readonly PayoutStep[]> {
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const entries = accepted.flatMap(({ id, acceptance }): readonly OwnedEntry[] => {
    const row = rowOf.get(id);
    return row === undefined ? [] : [owned(row, acceptEntry(acceptance))];
  });
  const uses = [...usedQuotes].map(([quoteId, payoutId]) => ({ quoteId, payoutId }));
  const [, failed] = await Promise.all([
    freezePayouts(sql, accepted),
    refusePayouts(sql, refused),
    useQuotes(sql, uses),
    postEntries(sql, entries),
  ]);
  const heard = await announce(sql, failed);
  const settleInMs = new Map(accepted.map(({ id, settleWithinMs }) => [id, settleWithinMs]));
  const failedIds = new Set(failed.map((row) => row.id));
  return rows.map((row) => ({
    ...stepOf(row),
    status: settleInMs.has(row.id) ? 'processing' : failedIds.has(row.id) ? 'failed' : row.status,
    settleInMs: settleInMs.get(row.id) ?? stepOf(row).settleInMs,
    isListenedTo: row.owesDelivery || heard.has(row.id),
  }));
}

function askedOf(row: LockedPayout, workflowAgeMs: number): Asked {
  return { ...row, ageMs: Math.max(Number(row.ageMs), workflowAgeMs) };
}

function noRail({ mode }: PayoutRow): Refusal {
  return refuse('corridor_unavailable', { detail: `No rail carries ${mode} payouts here.` });
}

/** A test account reaches only the sandbox bank, a live one never does. */
function railFor(rails: Rails, row: PayoutRow): Rail | undefined {
  return row.mode === 'test' ? rails.find('sandbox') : undefined;
}
