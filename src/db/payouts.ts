import type { Fragment } from 'postgres';
import type { Acceptance, PayoutTerms, RetriedPayout } from '../domain/acceptance.js';
import { formatRate } from '../domain/fx.js';
import type { AcceptedAmounts } from '../domain/ledger.js';
import {
  type Attention,
  type AttentionReason,
  isWaitingForRail,
  type StatusRecord,
  type VoidOutcome,
  type WakeablePayout,
} from '../domain/payout.js';
import type { Move } from '../domain/progress.js';
import type { Refusal } from '../domain/refusal.js';
import type { Mode } from './accounts.js';
import { byId, exactlyOne, oneOf, ownedIn, type Sql, unnest, when } from './client.js';
import { firstSentAt, lastSentAt, lostTimes, mayBeSentUnaccepted } from './interruptions.js';
import type { PriceOrigin } from './terms.js';
import { wakeAfter } from './wakeTimes.js';

/** A payout as requested, with its driver: the workflow that may move it. */
export type NewPayout = PayoutTerms & {
  readonly id: string;
  readonly accountId: string;
  readonly mode: Mode;
  readonly driver: string;
  readonly reference: string | null;
  readonly metadata: Readonly<Record<string, string>>;
};

/** The origin of a payout's price, null before acceptance. */
type NullableOrigin = { readonly [Name in keyof PriceOrigin]: PriceOrigin[Name] | null };

type StoredPayout = NewPayout &
  NullableOrigin &
  StatusRecord & {
    /** The payout that this one retries. */
    readonly retryOf: string | null;
    /** The version of the beneficiary's details for which the payout was accepted. */
    readonly beneficiaryVersion: number | null;
    readonly rail: string | null;
    readonly settleBy: Date | null;
    readonly refusal: Refusal | null;
    readonly submitStartedAt: Date | null;
    /** The last time the order may have been sent. */
    readonly lastSentAt: Date | null;
    readonly voidIntent: VoidOutcome | null;
    readonly railReference: string | null;
    readonly settledAt: Date | null;
    readonly returnedMinor: bigint | null;
    readonly batchId: string | null;
    readonly batchIndex: number | null;
    readonly attentionReason: AttentionReason | null;
    readonly attentionDetail: string | null;
    readonly attentionAt: Date | null;
  };

/** Amounts that are fixed at acceptance and never change. Rates are exact decimals. */
export type AcceptedColumns = Omit<AcceptedAmounts, 'rate'> & {
  readonly rate: string;
  readonly mid: string;
};

/** Before acceptance there are no amounts, and the currencies are those stated or implied by the request. */
type NoAmounts = { readonly [Name in Exclude<keyof AcceptedColumns, keyof PayoutTerms>]: null };

/** A payout that was accepted. */
export type AcceptedRow = StoredPayout & AcceptedColumns;

/** A payout, accepted if and only if `sourceMinor` is not null. A check constraint enforces this. */
export type PayoutRow = AcceptedRow | (StoredPayout & NoAmounts);

/**
 * Stores a request as a `pending` payout, due within seconds: the sweep starts its workflow if the request
 * fails to. Fills in the currencies implied by a quote or beneficiary, so that operators can search by
 * them. The binding values are decided later, under lock.
 */
export async function insertPayout(
  sql: Sql,
  payout: NewPayout,
  retryOf: string | null = null,
): Promise<WakeablePayout> {
  const rows = await sql<WakeablePayout[]>`
    insert into payouts (id, account_id, mode, driver, quote_id, beneficiary_id, source_currency,
      destination_currency, fixed_side, amount, reference, metadata, retry_of, wake_at)
    values (${payout.id}, ${payout.accountId}, ${payout.mode}, ${payout.driver},
      ${payout.quoteId}, ${payout.beneficiaryId},
      coalesce(${payout.sourceCurrency}, (select source_currency from quotes
        where id = ${payout.quoteId} and account_id = ${payout.accountId})),
      coalesce(${payout.destinationCurrency}, (select currency from beneficiaries
        where id = ${payout.beneficiaryId} and account_id = ${payout.accountId})),
      ${payout.fixedSide}, ${payout.amount}, ${payout.reference},
      ${sql.json(payout.metadata)}, ${retryOf}, ${wakeAfter(sql, 'step')})
    returning ${wakeable(sql)}`;
  return exactlyOne(rows[0]);
}

/** Maximum length of a chain of retries, to stop a program that retries without end. */
const mostRetries = 100;

/**
 * Finds a payout to retry. Its status alone does not show whether the money may have been paid. So
 * `may_be_paid` also considers late payments, corrections, parking, unapplied facts, submissions that an
 * interruption of the database may have lost, and statements on which more was paid under its key than came
 * back, for this payout and all those that it retries in turn. It is also true at the maximum length of the
 * chain.
 */
export async function findRetried(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<RetriedPayout | undefined> {
  const [row] = await sql<RetriedPayout[]>`
    with ${lostTimes(sql)} select r.* from ${retriedRow(sql, sql`${accountId}`, sql`${id}`)} r`;
  return row;
}

/** The subquery of `findRetried`, after `lostTimes`. */
export const retriedRow = (sql: Sql, accountId: Fragment, id: Fragment) => sql`(
    with recursive chain as (
      select id, status, retry_of, attention_at, applied_facts, rail, requested_at, failed_since,
             canceled_since, 1 as number
        from payouts where account_id = ${accountId} and id = ${id}
      union all
      select p.id, p.status, p.retry_of, p.attention_at, p.applied_facts, p.rail, p.requested_at,
             p.failed_since, p.canceled_since, c.number + 1
        from chain c join payouts p on p.id = c.retry_of where c.number < ${mostRetries})
    select c.id, c.status, (select r.id from payouts r where r.retry_of = c.id) as retried_by,
           exists (select from chain p
             where p.attention_at is not null or p.number = ${mostRetries}
                or ${hasUnappliedFacts(sql)} or ${mayBeSentUnaccepted(sql)}
                or (p.status in ('failed', 'canceled') and (exists (select from rail_inbox i
                  where i.payout_id = p.id and i.fact ->> 'kind' = 'settled') or 0 < (select sum(amount_minor
                    * case direction when 'debit' then 1 else -1 end) from statement_entries where rail_key = p.id)))
                or exists (select from ledger_entries e where e.payout_id = p.id
                    and e.kind in ('late_payment', 'suspense_clear', 'correction'))) as may_be_paid
      from chain c where c.number = 1)`;

/** Locks a payout that will be retried, so that the second of two concurrent retries sees the first. */
export async function lockRetried(sql: Sql, accountId: string, id: string): Promise<void> {
  await sql`
    select from payouts where account_id = ${accountId} and id = ${id} for no key update`;
}

/**
 * Records the customer's request to cancel, because a message to the workflow does not prove that the
 * customer made it. Writes at most once a minute, however often the request is repeated.
 */
export async function requestCancellation(sql: Sql, id: string): Promise<void> {
  await sql`
    update payouts set cancel_requested_at = now()
     where id = ${id}
       and coalesce(cancel_requested_at, '-infinity') < now() - interval '1 minute'`;
}

export const findPayout = oneOf(ownedIn<PayoutRow>('payouts'));

/** Returns the statuses of payouts by their IDs. */
export const statusesOf = (sql: Sql, ids: readonly string[]) =>
  sql<Pick<PayoutRow, 'id' | 'status'>[]>`select id, status from payouts where id = any (${ids})`;

/** Finds a payout of any account, for operators and activities. */
export const findPayoutById = byId<PayoutRow>('payouts');

/** Condition: inbox fact `i` is not applied to payout `p`. `applied_facts` lists those that moved it. */
export const isUnapplied = (sql: Sql) => sql`
  (i.applied_at is null and i.id <> all (coalesce(p.applied_facts, '{}')))`;

/** Condition: payout `p` has unapplied facts. Uses a count, because the planner may scan for `exists`. */
export const hasUnappliedFacts = (sql: Sql) => sql`
  ((select count(*) from rail_inbox i where i.payout_id = p.id and ${isUnapplied(sql)}) > 0)`;

export type LockedPayout = PayoutRow & {
  /** Whether the customer requested cancellation within an hour, the same limit as for operators. */
  readonly hasCancelRequest: boolean;
  /** Milliseconds since the request, measured by the database's clock only. */
  readonly ageMs: bigint;
  /** Milliseconds until the rail's settle-by, negative once it is past. */
  readonly settleInMs: bigint | null;
  /** Whether the inbox has facts about this payout that are not applied. */
  readonly hasUnprocessedEvents: boolean;
  /** Milliseconds since the rail was first called; null before that. */
  readonly sinceFirstAttemptMs: number | null;
};

/**
 * Locks the payouts that this driver may move, in ID order. Returns them with the times at which they were
 * or may have been sent (interruptions.ts). Leaves out payouts that another driver has taken over, which
 * the caller has lost. A null driver locks payouts of any driver, for changes that no driver may prevent.
 *
 * Async like the functions called in parallel with it, so that statements are sent in the order of calls.
 */
export const lockPayouts = async (sql: Sql, driver: string | null, ids: readonly string[]) =>
  sql<LockedPayout[]>`${decidingRows(sql, driver, ids)} order by p.id for no key update`;

/** Reads the same without locks. Decisions based on it must be checked again with `lockPayouts`. */
export const readPayouts = async (sql: Sql, driver: string | null, ids: readonly string[]) =>
  sql<LockedPayout[]>`${decidingRows(sql, driver, ids)} order by p.id`;

const decidingRows = (sql: Sql, driver: string | null, ids: readonly string[]) => sql`
    with ${lostTimes(sql)}
    select p.*, ${firstSentAt(sql)} as submit_started_at, ${lastSentAt(sql)} as last_sent_at,
           (extract(epoch from now() - p.requested_at) * 1000)::bigint as age_ms,
           (extract(epoch from p.settle_by - now()) * 1000)::bigint as settle_in_ms,
           ${hasUnappliedFacts(sql)} as has_unprocessed_events,
           coalesce(p.cancel_requested_at > now() - interval '1 hour', false) as has_cancel_request,
           (extract(epoch from now() - ${firstSentAt(sql)}) * 1000)::float8
             as since_first_attempt_ms
      from payouts p
     where p.id = any (${ids}) and ${when(sql, driver, (wanted) => sql`p.driver = ${wanted}`)}`;

export type AcceptedPayout = {
  readonly id: string;
  readonly acceptance: Acceptance;
  readonly origin: PriceOrigin;
  readonly beneficiaryVersion: number;
  readonly rail: string;
  readonly settleWithinMs: number;
};

/** Records the amounts of accepted payouts, which never change, and moves them to `processing`. */
export async function recordAcceptances(
  sql: Sql,
  accepted: readonly AcceptedPayout[],
): Promise<void> {
  if (accepted.length === 0) return;
  const rows = accepted.map(({ acceptance, origin, ...payout }) => ({
    // First, because `origin` may be a complete quote, whose ID and amounts must be overridden.
    ...origin,
    ...acceptance,
    ...payout,
    rate: formatRate(acceptance.rate),
    mid: formatRate(acceptance.mid),
  }));
  await sql`
    update payouts p
       set status = 'processing', source_currency = t.source_currency,
           destination_currency = t.destination_currency, fixed_side = t.fixed_side,
           amount = t.amount, source_minor = t.source_minor,
           fee_minor = t.fee_minor, net_minor = t.net_minor, receive_minor = t.receive_minor,
           mid_value_minor = t.mid_value_minor, rate = t.rate, mid = t.mid, rail = t.rail,
           rate_provider = t.rate_provider, rate_as_of = t.rate_as_of,
           source_rate_id = t.source_rate_id, destination_rate_id = t.destination_rate_id,
           beneficiary_version = t.beneficiary_version,
           fee_terms_id = t.fee_terms_id, spread_terms_id = t.spread_terms_id,
           settle_by = now() + make_interval(secs => t.settle_within_ms / 1000.0),
           -- The items of a batch are never due themselves: their chunk is.
           wake_at = case when p.driver = p.id then ${wakeAfter(sql, 'step')} end
      from ${unnest(sql, rows)`
        id text, source_currency text, destination_currency text, fixed_side text, amount bigint,
         source_minor bigint, fee_minor bigint, net_minor bigint, receive_minor bigint,
         mid_value_minor bigint, rate numeric, mid numeric, rail text, settle_within_ms float8,
         rate_provider text, rate_as_of timestamptz, source_rate_id bigint,
         destination_rate_id bigint, beneficiary_version int, fee_terms_id bigint,
         spread_terms_id bigint`}
     where p.id = t.id`;
}

/** The channel on which decisions are announced, each with the ID of its payout. */
export const decisionChannel = 'payout_decided';

/**
 * Announces a decision to the request that waits for it. Not in the decision's own transaction: each commit
 * that notifies waits for a lock that the one before it holds until it is on disk and on every replica. Never
 * fails, because the API also polls.
 */
export const notifyDecision = (sql: Sql, id: string) =>
  sql`select pg_notify(${decisionChannel}, ${id})`.catch(() => undefined);

/** Finds those payouts that are decided. */
export const decidedOf = (sql: Sql, ids: readonly string[]) => sql<{ id: string }[]>`
  select id from payouts where id = any (${[...ids]}::text[]) and status <> 'pending'`;

export type RefusedPayout = { readonly id: string; readonly refusal: Refusal };

/** Fails payouts that were refused before anything was debited. */
export async function refusePayouts(
  sql: Sql,
  refused: readonly RefusedPayout[],
): Promise<readonly PayoutRow[]> {
  if (refused.length === 0) return [];
  return sql<PayoutRow[]>`
    update payouts p
       set status = 'failed', status_reason = t.refusal ->> 'code', refusal = t.refusal,
           -- What a rail says of it all the same is still to be applied.
           wake_at = case when ${hasUnappliedFacts(sql)} then p.wake_at end
      from ${unnest(sql, refused)`id text, refusal jsonb`}
     where p.id = t.id
    returning p.*`;
}

export type MovedPayout = Move & {
  readonly id: string;
  /** IDs of the inbox rows that cause the move. */
  readonly appliedFacts?: readonly bigint[];
};

/** Columns that a move changes. */
type MovedColumn = 'id' | keyof Move | keyof StatusRecord | 'attentionReason' | 'attentionAt';

/**
 * Moves each payout by one status and returns its new row. Columns that the move does not change come
 * from `rows`, which were read under lock.
 *
 * The settlement time is the rail's, from its report or else its statement, unless that is before the rail
 * was called, and at most now. Without such a time it is the time of this move.
 */
export async function movePayouts(
  sql: Sql,
  rows: readonly PayoutRow[],
  moves: readonly MovedPayout[],
): Promise<readonly PayoutRow[]> {
  if (moves.length === 0) return [];
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const ending = moves.map((move) => {
    const reason = rowOf.get(move.id)?.attentionReason ?? null;
    const facts = move.appliedFacts?.join();
    const appliedFacts = facts ? `{${facts}}` : null;
    return { ...move, appliedFacts, endsWait: isWaitingForRail(reason) };
  });
  const changes = await sql<Pick<PayoutRow, MovedColumn>[]>`
    update payouts p
       set status = t.status, status_reason = t.status_reason,
           rail_reference = coalesce(t.rail_reference, p.rail_reference),
           settled_at = case when t.status <> 'settled' then p.settled_at else
             least(clock_timestamp(), (select stated.at from (select coalesce(t.settled_at,
                       (select min(s.booked_at) from statement_entries s where s.rail = p.rail
                           and s.rail_key = p.id and s.direction = 'debit')) as at) stated
                    where stated.at >= coalesce(p.submit_started_at, p.requested_at))) end,
           returned_minor = coalesce(t.returned_minor, p.returned_minor),
           applied_facts = p.applied_facts || t.applied_facts::bigint[],
           -- A payout that only waited for the rail to speak no longer needs an operator.
           attention_reason = case when t.ends_wait then null else p.attention_reason end,
           attention_detail = case when t.ends_wait then null else p.attention_detail end,
           attention_at = case when t.ends_wait then null else p.attention_at end,
           wake_at = case when t.status = 'sent' and p.driver = p.id
                          then ${wakeAfter(sql, 'sent')} end
      from ${unnest(sql, ending)`
        id text, status text, status_reason text, rail_reference text, returned_minor bigint,
         settled_at timestamptz, applied_facts text, ends_wait boolean`}
     where p.id = t.id
    returning p.id, p.status, p.status_reason, p.requested_at, p.processing_since, p.sent_since,
      p.settled_since, p.failed_since, p.canceled_since, p.returned_since, p.rail_reference,
      p.settled_at, p.returned_minor, p.attention_reason, p.attention_at`;
  return changes.flatMap((change) => {
    const row = rowOf.get(change.id);
    return row === undefined ? [] : [{ ...row, ...change }];
  });
}

/**
 * Parks payouts for an operator, with the reason and detail that `withAttention` derives from the locked
 * row. A parked payout keeps its `attention_at` for as long as its reason stays.
 */
export async function parkPayouts(
  sql: Sql,
  parked: readonly (Attention & { readonly id: string })[],
): Promise<void> {
  if (parked.length === 0) return;
  await sql`
    update payouts p
       set attention_reason = t.reason, attention_detail = t.detail,
           attention_at = case p.attention_reason when t.reason then p.attention_at else now() end,
           wake_at = case when p.driver = p.id then ${wakeAfter(sql, 'resting')} end
      from ${unnest(sql, parked)`id text, reason text, detail text`}
     where p.id = t.id`;
}

/** Unparks a payout and makes it due within seconds. `settleBy`, if not null, replaces the deadline. */
export async function unparkPayout(sql: Sql, id: string, settleBy: string | null): Promise<void> {
  await sql`
    update payouts
       set attention_reason = null, attention_detail = null, attention_at = null,
           settle_by = coalesce(${settleBy}::text::timestamptz, settle_by),
           wake_at = case when status in ('pending', 'processing', 'sent')
                          then ${wakeAfter(sql, 'step')} end
     where id = ${id}`;
}

/** Makes payouts due within seconds, in case their workflows cannot be signaled. */
export async function makeDue(sql: Sql, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await sql`update payouts set wake_at = ${wakeAfter(sql, 'step')} where id = any (${ids})`;
}

/** Keeps the sweep from waking a payout for `forMs`, while its activity works on it. */
export async function postponeWake(sql: Sql, id: string, forMs: number): Promise<void> {
  await sql`
    update payouts set wake_at = ${wakeAfter(sql, { ms: forMs })}
     where id = ${id} and wake_at is not null`;
}

/** Columns of a WakeablePayout. */
export const wakeable = (sql: Sql) => sql`
  id, account_id, mode, batch_id, source_currency, destination_currency, settle_by, fixed_side,
  amount,
  coalesce(source_minor, (select q.source_minor from quotes q where q.id = quote_id)) as source_minor,
  coalesce(receive_minor, (select q.receive_minor from quotes q where q.id = quote_id)) as receive_minor`;

/** Maximum number of payouts that one sweep wakes: a few seconds of work at 25 starts in flight. */
const sweepLimit = 500;

/**
 * Claims overdue payouts and postpones them, so that two sweeps do not claim the same ones.
 */
export async function claimOverduePayouts(sql: Sql): Promise<readonly WakeablePayout[]> {
  return sql<WakeablePayout[]>`
    update payouts set wake_at = ${wakeAfter(sql, 'woken')}
     where id in (select id from payouts where wake_at < now()
                   order by wake_at limit ${sweepLimit}
                     for update skip locked)
    returning ${wakeable(sql)}`;
}

/**
 * Postpones woken payouts that only wait, for the rail or an operator, by an hour; their workflows set an
 * earlier time themselves if necessary. Final payouts are no longer due. Locked payouts stay due, because
 * they are being moved or a fact about them is being stored. Call it in a transaction.
 */
export async function postponeWaiting(sql: Sql, ids: readonly string[]): Promise<void> {
  // A separate statement, so that the next one sees every fact stored before the lock was acquired.
  const locked = await sql<{ id: string }[]>`
    select id from payouts where id = any (${ids}) for no key update skip locked`;
  await sql`
    update payouts p
       set wake_at = case when attention_at is not null or status = 'sent'
                          then ${wakeAfter(sql, 'resting')} end
     where id = any (${locked.map(({ id }) => id)}) and wake_at is not null
       and (attention_at is not null or status not in ('pending', 'processing'))
       and not ${hasUnappliedFacts(sql)}`;
}
