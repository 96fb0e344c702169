import { Context } from '@temporalio/activity';
import { withheldForEver } from '../db/batches.js';
import { beneficiariesOf } from '../db/beneficiaries.js';
import { bulkTransaction, type Sql, transaction } from '../db/client.js';
import { findPayoutById, postponeWake } from '../db/payouts.js';
import { detailsOpener } from '../db/personalData.js';
import {
  beginRepeat,
  beginSubmission,
  type SettleLimit,
  type Submission,
  type SubmitInput,
} from '../db/submissions.js';
import { groupsOf } from '../domain/batch.js';
import { duplicateCodes, type PayoutFact } from '../domain/factEffect.js';
import { type Attention, railKey } from '../domain/payout.js';
import { createKeyedLimit } from '../keyedLimit.js';
import type { Rail, SubmitAnswer, Transfer } from '../rails/rail.js';
import type { Rails } from '../rails/registry.js';
import type { PayoutInput } from '../workflows/messages.js';
import { applyFacts } from './applyFacts.js';
import { cancelItems } from './cancellation.js';
import type { RailDeps } from './deps.js';
import { longStep, messageOf, retryLater } from './failure.js';
import type { DriverInput } from './ledger.js';
import { answersTo, factFromLookup, lookUp } from './lookup.js';
import { finishVoid, isStale, keyIsRemembered } from './releaseEvidence.js';
import { type PayoutSnapshot, park } from './snapshot.js';

/** Grace period after an activity's next attempt is due: if none comes, the sweep wakes the workflow. */
const wakeMarginMs = 30_000;

/** The same for polls. Longer than for submissions, because no hold depends on a late poll. */
const pollMarginMs = 3 * wakeMarginMs;

/**
 * Maximum concurrent rail calls of an account, a sixth of a worker's slots: an account with hundreds of
 * payouts that the rail does not answer must not delay other accounts.
 */
const callsOfAccount = 16;

/**
 * Maximum concurrent submissions in workflow tasks, a third of the tasks that a worker runs at once. Those
 * beyond it wait for a slow rail as regular activities, and decisions of other payouts do not wait at all.
 */
export const localSubmissions = 32;

/** Longest pause before a call over that limit is retried: as for a submission without an answer. */
const longestPauseMs = 5 * 60_000;

/** The activities that call a rail. */
export function railActivities(deps: RailDeps) {
  const { database, rails, factRules, deliverer } = deps;
  const limit = createKeyedLimit(callsOfAccount, 0);
  const local = createKeyedLimit(localSubmissions, 0);
  /** Calls a rail. At the account's limit, or that of all workflow tasks, postpones the call instead. */
  async function withinLimit<T>(id: string, accountId: string, call: () => Promise<T>): Promise<T> {
    const done = Context.current().info.isLocal ? local('all', call) : limit(accountId, call);
    if (done !== undefined) return done;
    // With jitter: retried all together, most calls would exceed the limit again.
    const pauseMs = Math.min(nextAttemptInMs(), longestPauseMs) * (0.5 + Math.random());
    await postponeWake(database, id, pauseMs + wakeMarginMs);
    throw retryLater('The limit of concurrent rail calls has been reached.', pauseMs);
  }
  return {
    /**
     * Submits payouts to their rail as their rows require: a payout never submitted is sent, one
     * submitted without an answer is looked up first. If an outcome stays unknown, the activity
     * fails and is retried under the same key.
     */
    submitPayouts: ({ driver, ids }: DriverInput): Promise<readonly PayoutSnapshot[]> =>
      longStep(async () => {
        const wakeInMs = nextAttemptInMs() + wakeMarginMs;
        const [id = ''] = ids;
        // The limit of workflow tasks is for all accounts together, so the row is not read there.
        const row = Context.current().info.isLocal ? undefined : await findPayoutById(database, id);
        const submit = () => submitAll(deps, { driver, ids, wakeInMs });
        const submitted = await withinLimit(id, row?.accountId ?? '', submit);
        deliverer.begin(submitted.snapshots);
        // A submission postpones the sweep itself.
        if (submitted.isWithheld) await postponeWake(database, id, wakeInMs);
        throwIfUnanswered(submitted);
        return submitted.snapshots;
      }),

    /**
     * Looks one payout up at the rail and applies the answer. Fails until the rail reports more
     * than acceptance: its retries are the polling.
     */
    pollRail: async ({ payoutId }: PayoutInput): Promise<readonly PayoutSnapshot[]> => {
      await postponeWake(database, payoutId, nextAttemptInMs() + pollMarginMs);
      const row = await findPayoutById(database, payoutId);
      if (row === undefined || row.rail === null) throw new Error(`${payoutId} has no rail.`);
      const rail = findRail(rails, row.rail);
      const call = () => lookUp(rail, [row]);
      const { answers, failure } = await withinLimit(payoutId, row.accountId, call);
      const answer = answers.get(payoutId);
      const fact = factFromLookup(answer);
      if (fact === undefined || fact.kind === 'accepted') {
        throw retryLater(`The rail's answer for ${payoutId}: ${answer?.kind ?? failure}.`);
      }
      const driven = { driver: payoutId, ids: [payoutId] };
      const snapshots = await transaction(database, (sql) =>
        applyFacts(sql, factRules, driven, new Map([[payoutId, fact]])),
      );
      deliverer.begin(snapshots);
      return snapshots;
    },
  };
}

/** Fails the activity if a payout has no answer, to retry it under the same key. The error says why. */
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

/** Returns when Temporal retries if this attempt fails, by the activity's retry policy. */
function nextAttemptInMs(): number {
  const { attempt, retryPolicy } = Context.current().info;
  // A worker gives an activity the intervals of its policy as milliseconds.
  const initialMs = Number(retryPolicy?.initialInterval ?? 1_000);
  const maximumMs = Number(retryPolicy?.maximumInterval ?? initialMs * 100);
  // The exponent is capped so that a thousandth attempt does not overflow.
  return Math.min(initialMs * 2 ** Math.min(attempt - 1, 30), maximumMs);
}

/** The rail's answer for a payout: a fact, none yet, or one that can no longer be obtained. */
type Submitted = { readonly id: string } & (
  | { readonly fact: PayoutFact }
  | { readonly unknown: string }
  | { readonly unrecoverable: string }
);

export type SubmittedAll = {
  readonly snapshots: readonly PayoutSnapshot[];
  /** The payouts without an answer, each with the reason. */
  readonly unknown: readonly string[];
  /** Whether some were not submitted: their batch is paused or canceled, or their rail not configured. */
  readonly isWithheld: boolean;
};

/**
 * Submits payouts to their rails as their rows require, and records the answers. A payout never sent is
 * sent. One sent without an answer is looked up, and sent again only if the rail does not know a key
 * that it would still remember. A void that was begun is finished.
 */
export async function submitAll(deps: RailDeps, input: SubmitInput): Promise<SubmittedAll> {
  const { database, rails, keyring } = deps;
  const { driver, ids } = input;
  const limits = Array.from(rails, ([rail, { limits }]) => ({ rail, ...limits }));
  const begunMs = Date.now();
  const begun = await beginSubmission(database, input, limits);
  const doubtful = begun.filter(({ mayRepeat }) => mayRepeat).map(notSent);
  const groups = groupByRail(
    rails,
    begun.filter(({ id }) => !doubtful.some((each) => each.id === id)),
  );
  const submitted = await Promise.all(
    [...groups].map(([rail, group]) =>
      submitGroup({ database, keyring, rail, driver, limits, begunMs }, group),
    ),
  );
  const results = new Map([...doubtful, ...submitted.flat()].map((result) => [result.id, result]));
  const unsent = ids.filter((id) => !results.has(id));
  await cancelWithheld(deps, unsent);
  const snapshots = await record(deps, input, results);
  const unknown = [...results.values()].flatMap((result) =>
    'unknown' in result ? [`${result.id}: ${result.unknown}`] : [],
  );
  const isWithheld = snapshots.some(
    ({ id, status }) => status === 'processing' && !results.has(id),
  );
  return { snapshots, unknown, isWithheld };
}

/** The result of a retry whose first payout may have been paid since the retry was accepted. */
const notSent = ({ id, wasSubmitted }: Submission): Submitted => ({
  id,
  unrecoverable: `${repeatsPaid} ${wasSubmitted ? 'not sent again' : 'not sent'}.`,
});

const repeatsPaid = 'The payout that it retries may have been paid in the meantime:';

/**
 * Cancels payouts that are withheld because their batch was canceled. The workflow that should have
 * canceled them may have died, and nothing else would ever release their holds.
 */
async function cancelWithheld(
  { database, factRules, deliverer }: RailDeps,
  ids: readonly string[],
): Promise<void> {
  const toCancel = ids.length === 0 ? [] : await withheldForEver(database, ids);
  if (toCancel.length === 0) return;
  const work = (sql: Sql) => cancelItems(sql, factRules, toCancel);
  deliverer.begin(await bulkTransaction(database, toCancel.length, work));
}

/** Records the facts, and parks payouts that need an operator, in one transaction. */
async function record(
  { database, factRules }: RailDeps,
  input: SubmitInput,
  results: ReadonlyMap<string, Submitted>,
): Promise<readonly PayoutSnapshot[]> {
  const facts = [...results.values()].flatMap((result) =>
    'fact' in result ? [[result.id, result.fact] as const] : [],
  );
  return bulkTransaction(database, input.ids.length, async (sql) => {
    const snapshots = await applyFacts(sql, factRules, input, new Map(facts));
    return park(sql, snapshots, (snapshot) => attentionFor(snapshot, results.get(snapshot.id)));
  });
}

/** Returns why an operator is needed: the key cannot be sent again, or the rail's time is over. */
function attentionFor(
  { status, settleInMs }: PayoutSnapshot,
  result: Submitted | undefined,
): Attention | undefined {
  // Only payouts still without an answer: another attempt may have received one meanwhile.
  if (result === undefined || status !== 'processing') return undefined;
  if ('unrecoverable' in result) return { reason: 'outcome_unknown', detail: result.unrecoverable };
  if (!('unknown' in result) || settleInMs > 0) return undefined;
  return { reason: 'settle_by_passed', detail: `The rail gives no answer: ${result.unknown}.` };
}

type Target = Pick<RailDeps, 'database' | 'keyring'> & {
  readonly rail: Rail;
  readonly driver: string;
  readonly limits: readonly SettleLimit[];
  /** A time just before the submission was committed. */
  readonly begunMs: number;
};

async function submitGroup(
  target: Target,
  group: readonly Submission[],
): Promise<readonly Submitted[]> {
  // If a void was begun, the order is not sent again: the void is finished instead.
  const voiding = group.filter(({ voidIntent }) => voidIntent !== null);
  const others = group.filter(({ voidIntent }) => voidIntent === null);
  // New orders go first: a rail with slow lookups must not hold them up.
  const fresh = others.filter(({ wasSubmitted }) => !wasSubmitted);
  const results = [...(await send(target, fresh))];
  const repeated = others.filter(({ wasSubmitted }) => wasSubmitted);
  for (const submission of voiding) {
    const result = await finishedVoid(target, submission);
    if (result === undefined) repeated.push(submission);
    else results.push(result);
  }
  return [...results, ...(await repeatAll(target, repeated))];
}

/** Finishes a void whose outcome was never recorded. Returns undefined if it came too late. */
async function finishedVoid(
  { database, rail, begunMs }: Target,
  submission: Submission,
): Promise<Submitted | undefined> {
  const { id } = submission;
  if (!keyIsRemembered(rail, submission)) return { id, unrecoverable: voidForgotten };
  try {
    const answer = await finishVoid(database, rail, id, begunMs);
    return answer === 'voided' ? { id, fact: { kind: 'voided' } } : undefined;
  } catch (error) {
    return { id, unknown: `the void has no answer: ${messageOf(error)}` };
  }
}

const voidForgotten = 'A void was begun, and the rail may have forgotten the key since.';

/** Looks up orders that were sent before, and sends again those that the rail does not know. */
async function repeatAll(
  target: Target,
  repeated: readonly Submission[],
): Promise<readonly Submitted[]> {
  const { database, rail, driver, limits, begunMs } = target;
  if (repeated.length === 0) return [];
  const { answers, failure } = await lookUp(rail, repeated);
  const results: Submitted[] = [];
  const toResend: Submission[] = [];
  for (const submission of repeated) {
    const { id } = submission;
    const answer = answers.get(id);
    const fact = factFromLookup(answer);
    const isEvident = fact !== undefined && fact.kind !== 'voided';
    const forgotten = submission.isOfLostTime ? lostAndForgotten : keyForgotten;
    if (answer === undefined) results.push({ id, unknown: failure });
    else if (!isEvident && isStale(begunMs)) results.push({ id, unknown: stale });
    else if (fact !== undefined) results.push({ id, fact });
    else if (keyIsRemembered(rail, submission)) toResend.push(submission);
    else results.push({ id, unrecoverable: forgotten });
  }
  const ids = toResend.map(({ id }) => id);
  const begun = new Set(await beginRepeat(database, driver, ids, limits));
  const resent = toResend.filter(({ id }) => begun.has(id));
  return [...results, ...(await send(target, resent))];
}

/** After a suspension, "not found" and "voided" may mean that the rail has forgotten a paid order. */
const stale = 'the process was suspended: not sent';

const keyForgotten =
  'The rail does not know the key, but may have forgotten it, so the order is not sent again.';

const lostAndForgotten =
  'It may have been sent in a period that the database has lost, and the rail may have forgotten its ' +
  "key: not sent again. Check the bank's statement.";

/**
 * Sends orders in the rail's bulk size. A process that was suspended after it committed the
 * submission does not send when it resumes: by then another process may have sent the order, and
 * the rail may have forgotten it.
 */
async function send(
  target: Target,
  submissions: readonly Submission[],
): Promise<readonly Submitted[]> {
  const { rail, begunMs } = target;
  const results: Submitted[] = [];
  for (const slice of groupsOf(submissions, rail.limits.bulkSize)) {
    const { transfers, unreadable } = await transfersOf(target, slice);
    results.push(...unreadable);
    const sent = slice.filter(({ id }) => !unreadable.some((each) => each.id === id));
    try {
      const answers =
        sent.length === 0 || isStale(begunMs) ? undefined : await rail.submit(transfers);
      const keys = transfers.map(({ key }) => key);
      const answerTo = answersTo(keys, answers ?? []);
      results.push(
        ...sent.map(({ id }) =>
          answers === undefined ? { id, unknown: stale } : submittedOf(id, answerTo.get(id)),
        ),
      );
    } catch (error) {
      // Whatever went wrong, the orders may have arrived: only a lookup can tell.
      results.push(...sent.map(({ id }) => ({ id, unknown: messageOf(error) })));
    }
  }
  return results;
}

/** Builds orders for the rail. Details that cannot be decrypted hold up no other payout. */
async function transfersOf({ database, keyring }: Target, submissions: readonly Submission[]) {
  const ids = submissions.map(({ id }) => id);
  const beneficiaries = await beneficiariesOf(database, ids);
  const rowOf = new Map(beneficiaries.map((row) => [row.payoutId, row]));
  const open = detailsOpener(keyring);
  const transfers: Transfer[] = [];
  const unreadable: Submitted[] = [];
  for (const sent of submissions) {
    const { id, receiveMinor: amountMinor, destinationCurrency: currency } = sent;
    try {
      const row = rowOf.get(id);
      const beneficiary = row && open(row);
      if (beneficiary === undefined) throw new Error(`${id} has no beneficiary.`);
      const remittance = sent.reference ?? '';
      transfers.push({ key: railKey(id), amountMinor, currency, beneficiary, remittance });
    } catch (error) {
      const unknown = `not sent, because its beneficiary cannot be read: ${messageOf(error)}`;
      unreadable.push({ id, unknown });
    }
  }
  return { transfers, unreadable };
}

function submittedOf(id: string, answer: SubmitAnswer | undefined): Submitted {
  switch (answer?.kind) {
    case undefined:
      return { id, unknown: 'the answer does not mention the order' };
    case 'unknown':
      return { id, unknown: answer.detail };
    case 'voided':
      // A command is voiding the key: the next attempt sees its result, or looks the void up.
      return { id, unknown: 'its key was voided' };
    case 'rejected':
      // The rail already has an order under the key: a lookup tells what became of it.
      return duplicateCodes.has(answer.code)
        ? { id, unknown: `the rail calls it a duplicate (${answer.code})` }
        : { id, fact: answer };
    case 'accepted':
      return { id, fact: answer };
  }
}

export function findRail(rails: Rails, name: string): Rail {
  const rail = rails.get(name);
  if (rail === undefined) throw new Error(`There is no rail named ${name}.`);
  return rail;
}

export function groupByRail<T extends { readonly rail: string | null }>(
  rails: Rails,
  payouts: readonly T[],
): ReadonlyMap<Rail, readonly T[]> {
  return Map.groupBy(payouts, ({ rail }) => findRail(rails, rail ?? ''));
}
