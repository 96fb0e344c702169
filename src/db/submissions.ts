import type { VoidOutcome } from '../domain/payout.js';
import { type Sql, unnest } from './client.js';
import { firstSentAt, lastSentAt, lostTimes } from './interruptions.js';
import { type AcceptedRow, retriedRow } from './payouts.js';
import { wakeAfter } from './wakeTimes.js';

/** The data needed to submit a payout to its rail. Not null, because it is fixed at acceptance. */
export type Submission = Pick<
  AcceptedRow,
  'id' | 'accountId' | 'rail' | 'reference' | 'receiveMinor' | 'destinationCurrency' | 'voidIntent'
> & {
  /** Whether it retries a payout that may have been paid since this one was accepted: do not send it. */
  readonly mayRepeat: boolean;
  /** Whether an earlier attempt began without a recorded response: look it up before sending again. */
  readonly wasSubmitted: boolean;
  /** Whether that attempt is not recorded but may have been lost in an interruption of the database. */
  readonly isOfLostTime: boolean;
  /** Milliseconds since the first attempt began, by the database's clock. */
  readonly sinceFirstAttemptMs: number;
};

/** Time that a rail has to settle an order after its submission. */
export type SettleLimit = { readonly rail: string; readonly settleWithinMs: number };

export type SubmitInput = {
  readonly driver: string;
  readonly ids: readonly string[];
  /** Time after which the sweep wakes the payouts if this attempt does not end. */
  readonly wakeInMs: number;
};

/**
 * Records the start of a submission. Must be committed before the rail is called, so that no crash leaves
 * an unrecorded call behind. In a paused or canceled batch, skips payouts not yet submitted and continues
 * those that were (see `beginRepeat`). The rail's time to settle starts at the first recorded submission.
 * Returns retries that must not be sent, but does not record them as sent. A report on the first payout that is stored
 * at the same time may be missed, as may one that arrives while the retry is on its way.
 */
export async function beginSubmission(
  sql: Sql,
  { driver, ids, wakeInMs }: SubmitInput,
  limits: readonly SettleLimit[],
): Promise<readonly Submission[]> {
  return sql<Submission[]>`
    with ${lostTimes(sql)}, locked as (
      select p.id, p.submit_started_at, ${firstSentAt(sql)} as first_sent_at,
             coalesce(case when p.retry_of is not null then (select r.may_be_paid
               from ${retriedRow(sql, sql`p.account_id`, sql`p.retry_of`)} r) end, false) as may_repeat
        from payouts p left join batches b on b.id = p.batch_id
       where p.id = any (${ids}) and p.driver = ${driver} and p.status = 'processing'
         and p.attention_at is null
         and (p.submit_started_at is not null or (b.paused_at is null and b.canceled_at is null))
       order by p.id for no key update of p
    )
    update payouts p
       set submit_started_at = coalesce(p.submit_started_at, locked.first_sent_at, sent.at),
           last_sent_at = coalesce(p.last_sent_at, sent.at),
           settle_by = case when locked.submit_started_at is null
                            then ${laterSettleBy(sql)} else p.settle_by end,
           wake_at = case when p.driver = p.id then ${wakeAfter(sql, { ms: wakeInMs })} end
      from locked cross join lateral (
             select case when locked.first_sent_at is not null or not may_repeat then now() end as at) sent,
           ${limitsTable(sql, limits)}
     where p.id = locked.id and t.rail = p.rail
    returning p.id, p.account_id, may_repeat, p.rail, p.reference, p.receive_minor,
      p.destination_currency, p.void_intent,
      locked.first_sent_at is not null as was_submitted,
      locked.submit_started_at is null and locked.first_sent_at is not null as is_of_lost_time,
      (extract(epoch from now() - p.submit_started_at) * 1000)::float8 as since_first_attempt_ms`;
}

/**
 * Records that orders are about to be sent again. Returns the payouts to send. Leaves out those that moved,
 * or for which a void was begun, while the rail was queried about them. An order of a canceled batch that
 * the rail does not have is never sent: the next attempt voids its key.
 */
export async function beginRepeat(
  sql: Sql,
  driver: string,
  ids: readonly string[],
  limits: readonly SettleLimit[],
): Promise<readonly string[]> {
  if (ids.length === 0) return [];
  const rows = await sql<Pick<AcceptedRow, 'id' | 'voidIntent'>[]>`
    with locked as (
      select p.id, b.canceled_at from payouts p left join batches b on b.id = p.batch_id
       where p.id = any (${[...ids]}::text[]) and p.driver = ${driver} and p.status = 'processing'
         and p.attention_at is null and p.void_intent is null
       order by p.id for no key update of p
    )
    update payouts p set last_sent_at = now(), settle_by = ${laterSettleBy(sql)},
           void_intent = case when locked.canceled_at is not null then 'canceled' end
      from locked, ${limitsTable(sql, limits)}
     where p.id = locked.id and t.rail = p.rail returning p.id, p.void_intent`;
  return rows.flatMap(({ id, voidIntent }) => (voidIntent === null ? [id] : []));
}

/** The settlement deadline counted from now, unless a person has granted a later one. */
function laterSettleBy(sql: Sql) {
  return sql`greatest(p.settle_by, now() + make_interval(secs => t.settle_within_ms / 1000.0))`;
}

function limitsTable(sql: Sql, limits: readonly SettleLimit[]) {
  return unnest(sql, limits)`rail text, settle_within_ms float8`;
}

/**
 * Records the outcome that a payout gets once voided, before the void is requested from the rail. Returns
 * the recorded outcome. An earlier one is kept, and applied by the step that first sees the void. Returns
 * undefined if this driver may no longer void the payout, or if its key is older than the rail remembers.
 */
export async function writeVoidIntent(
  sql: Sql,
  { driver, id }: { readonly driver: string; readonly id: string },
  intent: VoidOutcome,
  rememberedMs: number,
): Promise<VoidOutcome | undefined> {
  const [row] = await sql<{ voidIntent: VoidOutcome }[]>`
    with ${lostTimes(sql)}
    update payouts p set void_intent = coalesce(void_intent, ${intent}), ${sentTimes(sql)}
     where id = ${id} and driver = ${driver} and status = 'processing'
       and ${firstSentAt(sql)} > now() - make_interval(secs => ${rememberedMs / 1000})
    returning void_intent`;
  return row?.voidIntent;
}

const sentTimes = (sql: Sql) => sql`
  submit_started_at = ${firstSentAt(sql)}, last_sent_at = ${lastSentAt(sql)}`;

/**
 * Records the cancellation of payouts whose submission is not recorded but may have been lost in an
 * interruption of the database. The next submission makes the rail void them. Returns their IDs.
 */
export async function cancelLost(sql: Sql, ids: readonly string[]): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set();
  const rows = await sql<{ id: string }[]>`
    with ${lostTimes(sql)}
    update payouts p set void_intent = 'canceled', ${sentTimes(sql)}
     where id = any (${ids}) and submit_started_at is null and ${firstSentAt(sql)} is not null
    returning id`;
  return new Set(rows.map(({ id }) => id));
}

/** Clears the void intent after the rail did not void the key. The rail's result then decides. */
export async function clearVoidIntent(sql: Sql, id: string): Promise<void> {
  await sql`
    update payouts set void_intent = null where id = ${id} and status in ('processing', 'sent')`;
}
