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
import { firstSentAt, lastSentAt, lostTimes } from './interruptions.js';
import type { PriceOrigin } from './terms.js';
import { wakeAfter } from './wakeTimes.js';

/** What a request says of a payout, and who drives it. */
export type NewPayout = PayoutTerms & {
  readonly id: string;
  readonly accountId: string;
  readonly mode: Mode;
  readonly driver: string;
  readonly reference: string | null;
  readonly metadata: Readonly<Record<string, string>>;
};

/** Where its rate comes from is null before it is accepted. */
type NullableOrigin = { readonly [Name in keyof PriceOrigin]: PriceOrigin[Name] | null };

type StoredPayout = NewPayout &
  NullableOrigin &
  StatusRecord & {
    /** The payout that it repeats. */
    readonly retryOf: string | null;
    /** Of its beneficiary's details, those that it was accepted for. */
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

/** What is fixed when a payout is accepted, and never changes; rates are exact decimals. */
export type AcceptedColumns = Omit<AcceptedAmounts, 'rate'> & {
  readonly rate: string;
  readonly mid: string;
};

/** Before that the currencies are what the request says or implies, as far as it does. */
type NoAmounts = { readonly [Name in Exclude<keyof AcceptedColumns, keyof PayoutTerms>]: null };

/** A payout that was accepted. */
export type AcceptedRow = StoredPayout & AcceptedColumns;

/** The row of a payout, which is accepted or not: `sourceMinor` says which. A check in the database holds it. */
export type PayoutRow = AcceptedRow | (StoredPayout & NoAmounts);

/**
 * Records a request as a `pending` payout, due in a moment: the sweep starts its workflow if the
 * request does not. The currencies that a quote or beneficiary implies are filled in for operators to
 * search by; what counts is decided later, under lock.
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

/** A program that retries without end is stopped here: people have looked at a payout long before. */
const mostRetries = 100;

/**
 * A payout that another one repeats. Its status alone does not say what became of the money: a late
 * payment, what people have corrected, a case of theirs, a fact that was not applied yet or a statement
 * by which more was paid under its key than came back do, of the payout and of each that it repeats in
 * its turn.
 */
export async function findRetried(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<RetriedPayout | undefined> {
  const [row] = await sql<RetriedPayout[]>`
    with recursive chain as (
      select id, status, retry_of, attention_at, applied_facts, 1 as number from payouts
       where account_id = ${accountId} and id = ${id}
      union all
      select p.id, p.status, p.retry_of, p.attention_at, p.applied_facts, c.number + 1
        from chain c join payouts p on p.id = c.retry_of where c.number < ${mostRetries})
    select c.id, c.status, (select r.id from payouts r where r.retry_of = c.id) as retried_by,
           exists (select from chain p
             where p.attention_at is not null or p.number = ${mostRetries}
                or ${hasUnappliedFacts(sql)}
                or (p.status in ('failed', 'canceled') and (exists (select from rail_inbox i
                  where i.payout_id = p.id and i.fact ->> 'kind' = 'settled') or 0 < (select sum(amount_minor
                    * case direction when 'debit' then 1 else -1 end) from statement_entries where rail_key = p.id)))
                or exists (select from ledger_entries e where e.payout_id = p.id
                    and e.kind in ('late_payment', 'suspense_clear', 'correction'))) as may_be_paid
      from chain c where c.number = 1`;
  return row;
}

/** Locks a payout that is to be repeated, so that of two repetitions the second sees the first. */
export async function lockRetried(sql: Sql, accountId: string, id: string): Promise<void> {
  await sql`
    select from payouts where account_id = ${accountId} and id = ${id} for no key update`;
}

/**
 * Records the customer's wish to cancel: a message to the workflow is no proof. It is renewed at most
 * once a minute, however often it is repeated.
 */
export async function requestCancellation(sql: Sql, id: string): Promise<void> {
  await sql`
    update payouts set cancel_requested_at = now()
     where id = ${id}
       and coalesce(cancel_requested_at, '-infinity') < now() - interval '1 minute'`;
}

export const findPayout = oneOf(ownedIn<PayoutRow>('payouts'));

/** Of any account: for operators and activities. */
export const findPayoutById = byId<PayoutRow>('payouts');

/** That a fact `i` of the inbox has not been applied to its payout `p`; one that moved it stands in its row. */
export const isUnapplied = (sql: Sql) => sql`
  (i.applied_at is null and i.id <> all (coalesce(p.applied_facts, '{}')))`;

/** Counted: for the first one alone the planner would rather look through the table. */
export const hasUnappliedFacts = (sql: Sql) => sql`
  ((select count(*) from rail_inbox i where i.payout_id = p.id and ${isUnapplied(sql)}) > 0)`;

export type LockedPayout = PayoutRow & {
  /** Whether its customer has asked to cancel it within an hour, as an operator's request stands. */
  readonly hasCancelRequest: boolean;
  /** Milliseconds since the request, by the database's clock alone. */
  readonly ageMs: bigint;
  /** Milliseconds until the rail's settle-by, negative once it is past. */
  readonly settleInMs: bigint | null;
  /** Whether the inbox holds something about this payout that was not applied. */
  readonly hasUnprocessedEvents: boolean;
  /** Milliseconds since the rail was first called; null before that. */
  readonly sinceFirstAttemptMs: number | null;
};

/**
 * Locks the payouts that this driver may move, in the order of their ids, with the times at which each
 * was sent, or may have been (interruptions.ts). A payout that
 * another driver has taken over is not returned: the caller has lost it. A driver of null
 * takes them from any driver, for what no driver may prevent.
 *
 * Asynchronous, as what reads beside it: only so their statements go out in the order of the calls.
 */
export const lockPayouts = async (sql: Sql, driver: string | null, ids: readonly string[]) =>
  sql<LockedPayout[]>`${decidingRows(sql, driver, ids)} order by p.id for no key update`;

/** The same, without locks: what is decided by it is decided again by what `lockPayouts` returns. */
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
    // First, for it may be a whole quote, whose id and amounts must not count.
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
  /** The rows of the inbox that it is moved by. */
  readonly appliedFacts?: readonly bigint[];
};

/** What a move changes of a row. */
type MovedColumn = 'id' | keyof Move | keyof StatusRecord | 'attentionReason' | 'attentionAt';

/**
 * Moves each payout by one status, and returns its row as it is then: what the move does not
 * change is taken from the row that was read under lock.
 *
 * A payout settles when the rail says so, itself or on its statement, but neither before the rail
 * was called nor later than now; without such a time it settles when it is reported.
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
           -- A payout that only waited for the rail to speak no longer needs a person.
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
 * Parks payouts for an operator, for what `withAttention` makes of the locked row: its first time
 * stays. A move that has ended a wait makes it begin anew.
 */
export async function parkPayouts(
  sql: Sql,
  parked: readonly (Attention & { readonly id: string })[],
): Promise<void> {
  if (parked.length === 0) return;
  await sql`
    update payouts p
       set attention_reason = t.reason, attention_detail = t.detail,
           attention_at = coalesce(p.attention_at, now()),
           wake_at = case when p.driver = p.id then ${wakeAfter(sql, 'resting')} end
      from ${unnest(sql, parked)`id text, reason text, detail text`}
     where p.id = t.id`;
}

/** Unparks a payout; its workflow is due in a moment. A later settle-by may be granted. */
export async function unparkPayout(sql: Sql, id: string, settleBy: string | null): Promise<void> {
  await sql`
    update payouts
       set attention_reason = null, attention_detail = null, attention_at = null,
           settle_by = coalesce(${settleBy}::text::timestamptz, settle_by),
           wake_at = case when status in ('pending', 'processing', 'sent')
                          then ${wakeAfter(sql, 'step')} end
     where id = ${id}`;
}

/** Makes payouts due in a moment, in case their workflows cannot be signaled. */
export async function makeDue(sql: Sql, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await sql`update payouts set wake_at = ${wakeAfter(sql, 'step')} where id = any (${ids})`;
}

/** The payout's activity works on it meanwhile: the sweep wakes it only after that time. */
export async function postponeWake(sql: Sql, id: string, forMs: number): Promise<void> {
  await sql`
    update payouts set wake_at = ${wakeAfter(sql, { ms: forMs })}
     where id = ${id} and wake_at is not null`;
}

/** The columns of a WakeablePayout. */
export const wakeable = (sql: Sql) => sql`
  id, account_id, mode, batch_id, source_currency, destination_currency, settle_by, fixed_side,
  amount,
  coalesce(source_minor, (select q.source_minor from quotes q where q.id = quote_id)) as source_minor,
  coalesce(receive_minor, (select q.receive_minor from quotes q where q.id = quote_id)) as receive_minor`;

/** The most payouts one sweep wakes: at 25 starts in flight, some seconds of work. */
const sweepLimit = 500;

/**
 * Claims what is overdue, and postpones it, so that two sweeps do not claim the same.
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
 * Puts off what was woken and only waits, for the rail or for a person, by an hour; its
 * workflow says so itself when it is to be looked at sooner. A payout that is final is no longer due.
 * What somebody has locked stays due: it is being moved, or a fact of it is being stored. It needs a
 * transaction.
 */
export async function postponeWaiting(sql: Sql, ids: readonly string[]): Promise<void> {
  // A statement of its own: the next one sees every fact that was stored before the lock was taken.
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
