import { Context } from '@temporalio/activity';
import { transaction } from '../db/client.js';
import { findPayoutById, postponeWake } from '../db/payouts.js';
import { createKeyedLimit } from '../keyedLimit.js';
import { applyFacts } from './applyFacts.js';
import type { RailDeps } from './deps.js';
import { longStep, retryLater } from './failure.js';
import type { DriverInput } from './ledger.js';
import { factFromLookup, lookUp } from './lookup.js';
import type { PayoutSnapshot } from './snapshot.js';
import { findRail, type SubmittedAll, submitAll } from './submission.js';

/** How long after its next attempt an activity that does not come back is left to the sweep. */
const wakeMarginMs = 30_000;

/** As for submissions, but no hold depends on a poll that is late. */
const pollMarginMs = 3 * wakeMarginMs;

/**
 * Calls of an account that wait for a rail at once, a sixth of the slots of a worker: an account with
 * hundreds of payouts that the rail does not answer delays no other account's.
 */
const callsOfAccount = 16;

/** What finds no place among them comes again as often as a submission that has no answer. */
const longestPauseMs = 5 * 60_000;

type PollInput = { readonly payoutId: string };

/** The activities that call a rail. */
export function railActivities(deps: RailDeps) {
  const { database, rails, factRules } = deps;
  const limit = createKeyedLimit(callsOfAccount, 0);
  /** Calls a rail; at the account's limit the call is put off instead. */
  async function withinLimit<T>(id: string, accountId: string, call: () => Promise<T>): Promise<T> {
    const done = limit(accountId, call);
    if (done !== undefined) return done;
    // Not all after the same pause: together they would find no place again.
    const pauseMs = Math.min(nextAttemptInMs(), longestPauseMs) * (0.5 + Math.random());
    await postponeWake(database, id, pauseMs + wakeMarginMs);
    throw retryLater('The account has its limit of rail calls under way.', pauseMs);
  }
  return {
    /**
     * Hands payouts to their rail, decided by their rows: what was never started is sent,
     * what was started and has no answer is looked up first. A payout whose outcome stays
     * unknown makes the activity fail, to be retried under the same key.
     */
    submitPayouts: ({ driver, ids }: DriverInput): Promise<readonly PayoutSnapshot[]> =>
      longStep(async () => {
        const wakeInMs = nextAttemptInMs() + wakeMarginMs;
        const [id = ''] = ids;
        const accountId = (await findPayoutById(database, id))?.accountId ?? '';
        const submit = () => submitAll(deps, { driver, ids, wakeInMs });
        const submitted = await withinLimit(id, accountId, submit);
        throwIfUnanswered(submitted);
        return submitted.snapshots;
      }),

    /**
     * Asks the rail about one payout and applies what it says. Fails until there is something
     * to say: its retries are the polling.
     */
    pollRail: async ({ payoutId }: PollInput): Promise<readonly PayoutSnapshot[]> => {
      await postponeWake(database, payoutId, nextAttemptInMs() + pollMarginMs);
      const row = await findPayoutById(database, payoutId);
      if (row === undefined || row.rail === null) throw new Error(`${payoutId} has no rail.`);
      const rail = findRail(rails, row.rail);
      const ask = () => lookUp(rail, [row]);
      const { answers, failure } = await withinLimit(payoutId, row.accountId, ask);
      const answer = answers.get(payoutId);
      const fact = factFromLookup(answer);
      if (fact === undefined || fact.kind === 'accepted') {
        throw retryLater(`The rail's answer for ${payoutId}: ${answer?.kind ?? failure}.`);
      }
      const driven = { driver: payoutId, ids: [payoutId] };
      return transaction(database, (sql) =>
        applyFacts(sql, factRules, driven, new Map([[payoutId, fact]])),
      );
    },
  };
}

/** What has no answer is tried again under the same key; the failure says why. */
function throwIfUnanswered({ snapshots, unknown, isWithheld }: SubmittedAll): void {
  const isUnanswered = snapshots.some(
    ({ status, attention }) => status === 'processing' && attention === null,
  );
  if (isUnanswered && isWithheld) {
    throw retryLater('Its batch is paused or canceled, or its rail is not configured.');
  }
  if (isUnanswered && unknown.length > 0) {
    throw retryLater(`The rail's answer is unknown for ${unknown.join('; ')}`);
  }
}

/** When Temporal will try again if this attempt fails, by the activity's own retry policy. */
function nextAttemptInMs(): number {
  const { attempt, retryPolicy } = Context.current().info;
  const initialMs = durationMs(retryPolicy?.initialInterval) ?? 1_000;
  const maximumMs = durationMs(retryPolicy?.maximumInterval) ?? initialMs * 100;
  // The exponent is capped so that a thousandth attempt does not overflow.
  return Math.min(initialMs * 2 ** Math.min(attempt - 1, 30), maximumMs);
}

function durationMs(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
