import { payoutObject } from '../contract/objects.js';
import { shareBeneficiariesOf } from '../db/beneficiaries.js';
import { type Database, type Sql, transaction } from '../db/client.js';
import { recordEvents } from '../db/events.js';
import { type InboxRow, markApplied, type StoredFact, unappliedNews } from '../db/inbox.js';
import { lockBalancesOf, type OwnedEntry, postEntries, postedEntries } from '../db/ledger.js';
import {
  type AcceptedPayout,
  freezePayouts,
  type LockedPayout,
  lockPayouts,
  movePayouts,
  type PayoutRow,
  parkPayouts,
  type RefusedPayout,
  refusePayouts,
} from '../db/payouts.js';
import { lockQuotesOf, useQuotes } from '../db/quotes.js';
import { currentRates, midOf } from '../db/rates.js';
import { type Asked, decide, type Facts } from '../domain/acceptance.js';
import { parseRate } from '../domain/fx.js';
import { acceptEntry, type FrozenAmounts } from '../domain/ledger.js';
import type { AttentionReason, PayoutStatus, RailFact } from '../domain/payout.js';
import { type Move, type Progress, progressOf } from '../domain/progress.js';
import { isRefusal } from '../domain/refusal.js';
import type { Rails } from '../rails/registry.js';

export type LedgerDeps = {
  readonly database: Database;
  readonly rails: Rails;
  readonly rateMaximumAgeMs: number;
};

/** Where a payout stands after a step: all that its driver needs to choose the next one. */
export type PayoutStep = {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly attention: { readonly reason: AttentionReason; readonly detail: string } | null;
  /** Whether this step wrote an event that an endpoint listens to. */
  readonly isListenedTo: boolean;
  /** Whether the inbox holds something that was not applied. */
  readonly hasNews: boolean;
  readonly settleInMs: number;
};

export type DriverInput = { readonly driver: string; readonly ids: readonly string[] };
export type AcceptInput = DriverInput & { readonly workflowAgeMs: number };
export type ParkInput = {
  readonly driver: string;
  readonly id: string;
  readonly reason: AttentionReason;
  readonly detail: string;
};

/** The activities that write the ledger: each is one transaction that may be run again. */
export function ledgerActivities(deps: LedgerDeps) {
  const { database } = deps;
  return {
    /**
     * Decides the pending payouts of the list, in its order, and debits those it accepts.
     * Payouts that were decided before are only reported; those of another driver are left out.
     */
    acceptPayouts: ({ driver, ids, workflowAgeMs }: AcceptInput): Promise<readonly PayoutStep[]> =>
      transaction(database, (sql) => accept(sql, deps, driver, ids, workflowAgeMs)),

    /** Applies what the inbox holds about the payouts: moves, postings and events together. */
    settlePayouts: ({ driver, ids }: DriverInput): Promise<readonly PayoutStep[]> =>
      applyFacts(database, driver, ids, new Map()),

    /** Leaves a payout to a person. */
    parkPayout: ({ driver, id, reason, detail }: ParkInput): Promise<readonly PayoutStep[]> =>
      transaction(database, async (sql) => {
        const rows = await lockPayouts(sql, driver, [id]);
        await parkPayouts(
          sql,
          rows.map((row) => ({ id: row.id, reason, detail })),
        );
        return rows.map((row) =>
          stepOf({ ...row, attentionReason: reason, attentionDetail: detail }),
        );
      }),
  };
}

type Decisions = { readonly accepted: AcceptedPayout[]; readonly refused: RefusedPayout[] };

async function accept(
  sql: Sql,
  deps: LedgerDeps,
  driver: string,
  ids: readonly string[],
  workflowAgeMs: number,
): Promise<readonly PayoutStep[]> {
  // One round trip: the statements are sent together and run in this order of locks.
  const [rows, quotes, beneficiaries, balances, rates] = await Promise.all([
    lockPayouts(sql, driver, ids),
    lockQuotesOf(sql, ids),
    shareBeneficiariesOf(sql, ids),
    lockBalancesOf(sql, ids),
    currentRates(sql, deps.rateMaximumAgeMs),
  ]);
  const funds = new Map(balances.map((b) => [`${b.accountId} ${b.currency}`, b.availableMinor]));
  const usedQuotes = new Map<string, string>();
  const decisions: Decisions = { accepted: [], refused: [] };
  for (const id of ids) {
    const row = rows.find((candidate) => candidate.id === id);
    if (row === undefined || row.status !== 'pending') continue;
    const quote = quotes.find((candidate) => candidate.payoutId === id);
    const facts: Facts = {
      quote: quote && {
        ...quote,
        rate: parseRate(quote.rate),
        mid: parseRate(quote.mid),
        usedBy: quote.usedBy ?? usedQuotes.get(quote.id) ?? null,
      },
      beneficiary: beneficiaries.find((candidate) => candidate.payoutId === id),
      midOf: (source, destination) => midOf(rates, source, destination)?.mid,
      availableOf: (currency) => funds.get(`${row.accountId} ${currency}`) ?? 0n,
    };
    const decided = decide(askedOf(row, workflowAgeMs), facts);
    if (isRefusal(decided)) {
      decisions.refused.push({ id, refusal: decided });
      continue;
    }
    const purse = `${row.accountId} ${decided.sourceCurrency}`;
    funds.set(purse, (funds.get(purse) ?? 0n) - decided.sourceMinor);
    if (row.quoteId !== null) usedQuotes.set(row.quoteId, id);
    const rail = railOf(deps.rails, row);
    decisions.accepted.push({
      id,
      acceptance: decided,
      rail: rail.name,
      settleWithinMs: rail.limits.settleWithinMs,
    });
  }
  return write(sql, rows, decisions, usedQuotes);
}

async function write(
  sql: Sql,
  rows: readonly LockedPayout[],
  { accepted, refused }: Decisions,
  usedQuotes: ReadonlyMap<string, string>,
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
  const heard = await recordEvents(sql, failed.map(eventOf));
  const settleInMs = new Map(accepted.map(({ id, settleWithinMs }) => [id, settleWithinMs]));
  const failedIds = new Set(failed.map((row) => row.id));
  return rows.map((row) => ({
    ...stepOf(row),
    status: settleInMs.has(row.id) ? 'processing' : failedIds.has(row.id) ? 'failed' : row.status,
    settleInMs: settleInMs.get(row.id) ?? stepOf(row).settleInMs,
    isListenedTo: heard.has(row.id),
  }));
}

/**
 * Applies facts to payouts: those that the caller brings, then what the inbox holds. Moves,
 * postings, events and the marks in the inbox are one transaction.
 */
export async function applyFacts(
  database: Database,
  driver: string,
  ids: readonly string[],
  brought: ReadonlyMap<string, RailFact>,
): Promise<readonly PayoutStep[]> {
  return transaction(database, async (sql) => {
    const [rows, news, posted] = await Promise.all([
      lockPayouts(sql, driver, ids),
      unappliedNews(sql, ids),
      postedEntries(sql, ids),
    ]);
    const progress = rows.map((row) => {
      const inbox = news.filter((item) => item.payoutId === row.id);
      const direct = brought.get(row.id);
      const facts = [...(direct === undefined ? [] : [direct]), ...inbox.map(factOf)];
      return { row, inbox, direct: direct === undefined ? 0 : 1, ...judge(row, facts) };
    });
    const moved = await moveAll(sql, progress);
    const entries = progress.flatMap(({ row, entries: due }) =>
      due
        .filter((entry) => !posted.has(`${row.id} ${entry.kind}`))
        .map((entry) => owned(row, entry)),
    );
    await Promise.all([
      postEntries(sql, entries),
      parkPayouts(
        sql,
        progress.flatMap(({ row, attention }) => (attention ? [{ id: row.id, ...attention }] : [])),
      ),
      markApplied(sql, progress.flatMap(appliedOf)),
    ]);
    const heard = await recordEvents(sql, moved.map(eventOf));
    return progress.map(({ row, attention }) => {
      const latest = moved.findLast((candidate) => candidate.id === row.id) ?? row;
      const step = stepOf({ ...row, ...latest });
      return {
        ...step,
        attention: step.attention ?? attention ?? null,
        isListenedTo: heard.has(row.id),
        hasNews: false,
      };
    });
  });
}

type Judged = Progress & {
  readonly row: LockedPayout;
  readonly inbox: readonly InboxRow[];
  /** How many of the facts came with the call and not from the inbox. */
  readonly direct: number;
};

function judge(row: LockedPayout, facts: readonly RailFact[]): Progress {
  if (row.sourceMinor !== null) return progressOf({ ...frozenOf(row), status: row.status }, facts);
  const detail = `The rail speaks of a payout that is ${row.status} and was never accepted.`;
  return {
    moves: [],
    entries: [],
    attention: facts.length === 0 ? undefined : { reason: 'contradiction', detail },
    outcomes: facts.map(() => 'contradiction'),
  };
}

function appliedOf({ inbox, direct, outcomes }: Judged) {
  return inbox.map((item, index) => ({
    id: item.id,
    outcome: outcomes[direct + index] ?? 'nothing new',
  }));
}

/** Moves every payout along its own path, one status a statement, all of a depth together. */
async function moveAll(sql: Sql, progress: readonly Judged[]): Promise<readonly PayoutRow[]> {
  const moved: PayoutRow[] = [];
  // No path is longer than processing → sent → settled → returned.
  for (let depth = 0; depth < 3; depth += 1) {
    const moves = progress.flatMap(({ row, moves: path }): readonly (Move & { id: string })[] => {
      const move = path[depth];
      return move === undefined ? [] : [{ id: row.id, ...move }];
    });
    moved.push(...(await movePayouts(sql, moves)));
  }
  return moved;
}

function factOf({ fact }: { readonly fact: StoredFact }): RailFact {
  const { code = 'NARR', reason = 'no reason was given', currency = '' } = fact;
  const amountMinor = BigInt(fact.amountMinor ?? '0');
  switch (fact.kind) {
    case 'settled':
      return { kind: 'settled', amountMinor, currency };
    case 'rejected':
      return { kind: 'rejected', code, reason };
    case 'returned':
      return { kind: 'returned', amountMinor, currency, code, reason };
  }
}

/** The frozen amounts of a row that was accepted; the database has all of them or none. */
export function frozenOf(row: PayoutRow): FrozenAmounts {
  const { sourceCurrency, destinationCurrency, sourceMinor, feeMinor, netMinor } = row;
  const { receiveMinor, midValueMinor, rate } = row;
  if (
    sourceCurrency === null ||
    destinationCurrency === null ||
    sourceMinor === null ||
    feeMinor === null ||
    netMinor === null ||
    receiveMinor === null ||
    midValueMinor === null ||
    rate === null
  ) {
    throw new Error(`Payout ${row.id} was not accepted and has no frozen amounts.`);
  }
  return {
    sourceCurrency,
    destinationCurrency,
    sourceMinor,
    feeMinor,
    netMinor,
    receiveMinor,
    midValueMinor,
    rate: parseRate(rate),
  };
}

function askedOf(row: LockedPayout, workflowAgeMs: number): Asked {
  return { ...row, ageMs: Math.max(Number(row.ageMs), workflowAgeMs) };
}

function railOf(rails: Rails, row: PayoutRow) {
  // A test account reaches only the sandbox bank, a live one never does.
  const rail = row.mode === 'test' ? rails.find('sandbox') : undefined;
  if (rail === undefined) throw new Error(`There is no rail for ${row.mode} payouts.`);
  return rail;
}

function owned(row: PayoutRow, entry: OwnedEntry['entry']): OwnedEntry {
  return { entry, mode: row.mode, accountId: row.accountId, payoutId: row.id };
}

function eventOf(row: PayoutRow) {
  return {
    accountId: row.accountId,
    type: `payout.${eventStatus(row.status)}` as const,
    payoutId: row.id,
    data: payoutObject(row),
  };
}

function eventStatus(status: PayoutStatus) {
  if (status === 'pending' || status === 'processing') {
    throw new Error(`There is no event for the status ${status}.`);
  }
  return status;
}

function stepOf(
  row: PayoutRow & Partial<Pick<LockedPayout, 'hasNews' | 'settleInMs'>>,
): PayoutStep {
  const { attentionReason: reason, attentionDetail: detail } = row;
  return {
    id: row.id,
    status: row.status,
    attention: reason === null ? null : { reason, detail: detail ?? '' },
    isListenedTo: false,
    hasNews: row.hasNews ?? false,
    settleInMs: Number(row.settleInMs ?? 0n),
  };
}
