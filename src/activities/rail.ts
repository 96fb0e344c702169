import { Context } from '@temporalio/activity';
import { withheldForEver } from '../db/batches.js';
import { bulkTransaction, type Database, type Sql, transaction } from '../db/client.js';
import { findPayoutById, parkPayouts, postponeWake } from '../db/payouts.js';
import { type FactRules, railKey } from '../domain/payout.js';
import type { Rails } from '../rails/registry.js';
import { createShare } from '../share.js';
import { applyFacts } from './applyFacts.js';
import { cancelItems } from './cancellation.js';
import { failAfterAttempts, retryLater, withHeartbeat } from './failure.js';
import type { DriverInput } from './ledger.js';
import { factFromLookup, lookUp } from './lookup.js';
import type { PayoutSnapshot } from './snapshot.js';
import { findRail, type SubmitInput, type Submitted, submitToRails } from './submission.js';

export type RailDeps = {
  readonly database: Database;
  readonly rails: Rails;
  readonly factRules: FactRules;
};

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

/** The activities that call a rail. */
export function railActivities(deps: RailDeps) {
  const { database, rails, factRules } = deps;
  const share = createShare(callsOfAccount, 0);
  /** Does what calls a rail; beyond the account's share nothing is begun. */
  async function inShare<T>(id: string, accountId: string, call: () => Promise<T>): Promise<T> {
    const done = share(accountId, call);
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
      failAfterAttempts(
        withHeartbeat(async () => {
          const wakeInMs = nextAttemptInMs() + wakeMarginMs;
          const [id = ''] = ids;
          const accountId = (await findPayoutById(database, id))?.accountId ?? '';
          const submitted = await inShare(id, accountId, () =>
            submitAll(deps, { driver, ids, wakeInMs }),
          );
          throwIfOpen(submitted);
          return submitted.steps;
        }),
      ),

    /**
     * Asks the rail about one payout and applies what it says. Fails until there is something
     * to say: its retries are the polling.
     */
    pollRail: async ({
      payoutId,
    }: {
      readonly payoutId: string;
    }): Promise<readonly PayoutSnapshot[]> => {
      await postponeWake(database, payoutId, nextAttemptInMs() + pollMarginMs);
      const row = await findPayoutById(database, payoutId);
      if (row === undefined || row.rail === null) throw new Error(`${payoutId} has no rail.`);
      const key = railKey(payoutId);
      const rail = findRail(rails, row.rail);
      const { answers, failure } = await inShare(payoutId, row.accountId, () =>
        lookUp(rail, [key]),
      );
      const answer = answers.get(key);
      const fact = factFromLookup(answer);
      if (fact === undefined || fact.kind === 'accepted') {
        throw retryLater(`The rail's answer for ${payoutId}: ${answer?.kind ?? failure}.`);
      }
      return transaction(database, (sql) =>
        applyFacts(
          sql,
          factRules,
          { driver: payoutId, ids: [payoutId] },
          new Map([[payoutId, fact]]),
        ),
      );
    },
  };
}

export type SubmittedAll = {
  readonly steps: readonly PayoutSnapshot[];
  /** What the rail left open, with what is known about it. */
  readonly unknown: readonly string[];
  /** How many of the open ones were not given to the rail, because their batch is held back. */
  readonly withheld: number;
};

/** What has no answer is tried again under the same key; the failure says why. */
function throwIfOpen({ steps, unknown, withheld }: SubmittedAll): void {
  const isOpen = steps.some((step) => step.status === 'processing' && step.attention === null);
  if (isOpen && withheld > 0) {
    throw retryLater('Its batch is paused or canceled, or its rail is not configured.');
  }
  if (isOpen && unknown.length > 0) {
    throw retryLater(`The rail's answer is unknown for ${unknown.join('; ')}`);
  }
}

/** Gives payouts to their rail, decided by their rows, and records what it answers. */
export async function submitAll(deps: RailDeps, input: SubmitInput): Promise<SubmittedAll> {
  const { database, factRules } = deps;
  const { ids } = input;
  const results = await submitToRails(deps, input);
  const begun = new Set(results.map(({ id }) => id));
  await cancelWithheld(
    deps,
    ids.filter((id) => !begun.has(id)),
  );
  const steps = await bulkTransaction(database, ids.length, (sql) =>
    record(sql, factRules, input, results),
  );
  const unknown = results.flatMap((result) =>
    'unknown' in result ? [`${result.id}: ${result.unknown}`] : [],
  );
  const withheld = steps.filter(({ id, status }) => status === 'processing' && !begun.has(id));
  return { steps, unknown, withheld: withheld.length };
}

/**
 * Cancels what is held back because its batch was canceled: the workflow that was to
 * cancel it may have died, and nothing else would ever release it.
 */
async function cancelWithheld(
  { database, factRules }: RailDeps,
  ids: readonly string[],
): Promise<void> {
  if (ids.length === 0) return;
  const toCancel = await withheldForEver(database, ids);
  if (toCancel.length === 0) return;
  await bulkTransaction(database, toCancel.length, (sql) => cancelItems(sql, factRules, toCancel));
}

/** The facts, and what has to be left to a person, in one transaction. */
async function record(
  sql: Sql,
  rules: FactRules,
  input: SubmitInput,
  results: readonly Submitted[],
): Promise<readonly PayoutSnapshot[]> {
  const facts = new Map(
    results.flatMap((result) => ('fact' in result ? [[result.id, result.fact] as const] : [])),
  );
  const steps = await applyFacts(sql, rules, input, facts);
  const resultOf = new Map(results.map((result) => [result.id, result]));
  // Only what still waits for an answer: another attempt may have got one meanwhile.
  const parked = steps.flatMap((step) => {
    const result = step.status === 'processing' ? resultOf.get(step.id) : undefined;
    const attention = result && attentionFor(result, step.settleInMs);
    return attention === undefined ? [] : [{ id: step.id, ...attention }];
  });
  await parkPayouts(sql, parked);
  const parkedOf = new Map(parked.map(({ id, reason, detail }) => [id, { reason, detail }]));
  return steps.map((step) => ({
    ...step,
    attention: step.attention ?? parkedOf.get(step.id) ?? null,
  }));
}

/** Why a person has to look: the key cannot be repeated, or the rail's time has passed. */
function attentionFor(
  result: Submitted,
  settleInMs: number,
): NonNullable<PayoutSnapshot['attention']> | undefined {
  if ('unrecoverable' in result) return { reason: 'outcome_unknown', detail: result.unrecoverable };
  if (!('unknown' in result) || settleInMs > 0) return undefined;
  return { reason: 'settle_by_passed', detail: `The rail gives no answer: ${result.unknown}.` };
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
