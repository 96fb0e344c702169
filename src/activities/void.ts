import type { Database } from '../db/client.js';
import { clearVoidIntent, writeVoidIntent } from '../db/submissions.js';
import { railKey, type VoidOutcome } from '../domain/payout.js';
import type { Rail } from '../rails/rail.js';
import { retryLater } from './failure.js';

/**
 * Has the rail void a payout's key. What that makes of the payout is committed first, so that a
 * crash after the void cannot turn a cancellation into a failure, or the other way round. The
 * end itself is written by whichever transaction applies the `voided` fact.
 */
export async function voidKey(
  database: Database,
  rail: Rail,
  payout: { readonly driver: string; readonly id: string },
  intent: VoidOutcome,
): Promise<'voided' | 'too_late'> {
  const begunMs = Date.now();
  const rememberedMs = rail.limits.keyRetentionMs - keyMarginMs;
  const written = await writeVoidIntent(database, payout, intent, rememberedMs);
  if (written === undefined) {
    throw retryLater('The payout has changed meanwhile; it is read again.');
  }
  return finishVoid(database, rail, payout.id, begunMs);
}

/**
 * Asks for a void whose intent is written; one that comes too late takes the intent back.
 * `begunMs` is when the rail was known to remember the key: a process that was suspended since
 * asks for nothing, and believes no answer.
 */
export async function finishVoid(
  database: Database,
  rail: Rail,
  id: string,
  begunMs: number,
): Promise<'voided' | 'too_late'> {
  const throwIfStale = () => {
    if (isStale(begunMs))
      throw retryLater('The process was suspended during the void; the order is looked up.');
  };
  throwIfStale();
  const answer = await rail.voidKey(railKey(id));
  throwIfStale();
  if (answer === 'too_late') await clearVoidIntent(database, id);
  return answer;
}

/** Many times what a step and its call to the rail take, and nothing against a rail's memory. */
const callLimitMs = 60_000;

/**
 * Whether more has passed since then than between a step and its call to the rail: the process
 * was suspended, others went on meanwhile, and the rail may have forgotten what it knew.
 * Measured by the wall clock, since a monotonic one may stand still with the machine.
 */
export function isStale(begunMs: number): boolean {
  return Math.abs(Date.now() - begunMs) > callLimitMs;
}

/** A call that begins while the key is remembered must also arrive while it is. */
const keyMarginMs = 60 * 60 * 1000;

/**
 * Whether the rail still knows the key, counted from the first attempt. Only then is "not found"
 * a reason to send it again, and a void a proof that the rail has not paid: a rail that has
 * forgotten a key will also void what it has long paid.
 */
export function keyIsRemembered(
  rail: Rail,
  submission: { readonly sinceFirstAttemptMs: number },
): boolean {
  return submission.sinceFirstAttemptMs < rail.limits.keyRetentionMs - keyMarginMs;
}
