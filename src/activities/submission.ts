import { beneficiariesOf } from '../db/beneficiaries.js';
import type { Database } from '../db/client.js';
import {
  beginRepeat,
  beginSubmission,
  type SettleLimit,
  type Submission,
} from '../db/submissions.js';
import { groupsOf } from '../domain/batch.js';
import { isDuplicateCode, type PayoutFact, railKey } from '../domain/payout.js';
import type { Rail, SubmitAnswer, Transfer } from '../rails/rail.js';
import type { Rails } from '../rails/registry.js';
import { factFromLookup, lookUp } from './lookup.js';
import { finishVoid, isStale, keyIsRemembered } from './void.js';

/** What the rail says of a payout: a fact, no answer yet, or one that can no longer be had. */
export type Submitted = { readonly id: string } & (
  | { readonly fact: PayoutFact }
  | { readonly unknown: string }
  | { readonly unrecoverable: string }
);

type Deps = { readonly database: Database; readonly rails: Rails };

export type SubmitInput = {
  readonly driver: string;
  readonly ids: readonly string[];
  /** When the sweep wakes the payouts if this attempt does not end. */
  readonly wakeInMs: number;
};

/**
 * Gives payouts to their rails, decided by their rows: what was never sent is sent; what was
 * sent and has no answer is looked up, and sent again only where the rail does not know a key
 * that it would still remember; a void that was begun is finished. Returns what the rails say of
 * every payout that the driver may submit.
 */
export async function submitToRails(
  { database, rails }: Deps,
  input: SubmitInput,
): Promise<readonly Submitted[]> {
  const limits = rails.all.map(({ name, limits }) => ({ rail: name, ...limits }));
  const begunMs = Date.now();
  const submissions = await beginSubmission(database, input, limits);
  const groups = groupByRail(rails, submissions);
  const results = await Promise.all(
    [...groups].map(([rail, group]) =>
      submitGroup({ database, rail, driver: input.driver, limits }, group, begunMs),
    ),
  );
  return results.flat();
}

type Target = {
  readonly database: Database;
  readonly rail: Rail;
  readonly driver: string;
  readonly limits: readonly SettleLimit[];
};

async function submitGroup(
  target: Target,
  group: readonly Submission[],
  begunMs: number,
): Promise<readonly Submitted[]> {
  const fresh = group.filter(
    ({ wasSubmitted, voidIntent }) => !wasSubmitted && voidIntent === null,
  );
  // First what has never been sent: a rail that is slow to look up must not hold it up.
  const sent = await sendAll(target, fresh, begunMs);
  const voided: Submitted[] = [];
  const repeated = group.filter(
    ({ wasSubmitted, voidIntent }) => wasSubmitted && voidIntent === null,
  );
  for (const submission of group.filter(({ voidIntent }) => voidIntent !== null)) {
    const result = await finishedVoid(target, submission, begunMs);
    if (result === undefined) repeated.push(submission);
    else voided.push(result);
  }
  return [...sent, ...voided, ...(await repeatAll(target, repeated, begunMs))];
}

/** Finishes a void whose outcome was never recorded; undefined when it came too late. */
async function finishedVoid(
  { database, rail }: Target,
  submission: Submission,
  begunMs: number,
): Promise<Submitted | undefined> {
  const { id } = submission;
  if (!keyIsRemembered(rail, submission)) {
    return {
      id,
      unrecoverable: 'A void was begun, and the rail may have forgotten the key since.',
    };
  }
  try {
    const answer = await finishVoid(database, rail, id, begunMs);
    return answer === 'voided' ? { id, fact: { kind: 'voided' } } : undefined;
  } catch (error) {
    return { id, unknown: `the void has no answer: ${messageOf(error)}` };
  }
}

/** Looks up what was sent before, and sends again what the rail does not know. */
async function repeatAll(
  target: Target,
  repeated: readonly Submission[],
  begunMs: number,
): Promise<readonly Submitted[]> {
  const { database, rail, driver, limits } = target;
  if (repeated.length === 0) return [];
  const { answers, failure } = await lookUp(
    rail,
    repeated.map(({ id }) => railKey(id)),
  );
  const results: Submitted[] = [];
  const toResend: Submission[] = [];
  for (const submission of repeated) {
    const { id } = submission;
    const answer = answers.get(railKey(id));
    const fact = factFromLookup(answer);
    const isEvident = fact !== undefined && fact.kind !== 'voided';
    if (answer === undefined) results.push({ id, unknown: failure });
    else if (!isEvident && isStale(begunMs)) results.push({ id, unknown: stale });
    else if (fact !== undefined) results.push({ id, fact });
    else if (keyIsRemembered(rail, submission)) toResend.push(submission);
    else results.push({ id, unrecoverable: keyForgotten });
  }
  const open = new Set(
    await beginRepeat(
      database,
      driver,
      toResend.map(({ id }) => id),
      limits,
    ),
  );
  const sent = await sendAll(
    target,
    toResend.filter(({ id }) => open.has(id)),
    begunMs,
  );
  return [...results, ...sent];
}

/** By now "not found" and "voided" may mean that the rail has forgotten what it has paid. */
const stale = 'the process was suspended: not sent';

const keyForgotten = 'The rail does not know the key, and may have forgotten it: not sent again.';

async function sendAll(
  target: Target,
  submissions: readonly Submission[],
  begunMs: number,
): Promise<readonly Submitted[]> {
  const results: Submitted[] = [];
  for (const slice of groupsOf(submissions, target.rail.limits.bulkSize)) {
    results.push(...(await send(target, slice, begunMs)));
  }
  return results;
}

/**
 * A process that was suspended after it committed the submission does not send when it wakes:
 * by then another may have sent the order, and the rail may have forgotten that.
 */
async function send(
  { database, rail }: Target,
  submissions: readonly Submission[],
  begunMs: number,
): Promise<readonly Submitted[]> {
  const transfers = await transfersOf(database, submissions);
  if (isStale(begunMs)) {
    return submissions.map(({ id }) => ({ id, unknown: stale }));
  }
  try {
    const answers = await rail.submit(transfers);
    const answerTo = new Map(answers.map((answer) => [answer.key, answer]));
    return submissions.map(({ id }) => submittedOf(id, answerTo.get(railKey(id))));
  } catch (error) {
    // It may have arrived whatever went wrong: only a look-up can tell.
    return submissions.map(({ id }) => ({ id, unknown: messageOf(error) }));
  }
}

async function transfersOf(
  database: Database,
  submissions: readonly Submission[],
): Promise<readonly Transfer[]> {
  const beneficiaries = await beneficiariesOf(
    database,
    submissions.map(({ id }) => id),
  );
  const detailsOf = new Map(beneficiaries.map((row) => [row.payoutId, row.details]));
  return submissions.map((submission): Transfer => {
    const beneficiary = detailsOf.get(submission.id);
    if (beneficiary === undefined) throw new Error(`${submission.id} has no beneficiary.`);
    const { receiveMinor, destinationCurrency } = submission;
    return {
      key: railKey(submission.id),
      amountMinor: receiveMinor,
      currency: destinationCurrency,
      beneficiary,
      remittance: submission.reference ?? '',
    };
  });
}

function submittedOf(id: string, answer: SubmitAnswer | undefined): Submitted {
  switch (answer?.kind) {
    case undefined:
      return { id, unknown: 'the answer does not mention it' };
    case 'unknown':
      return { id, unknown: answer.detail };
    case 'voided':
      // A command is voiding it: the next attempt sees what that wrote, or looks the void up.
      return { id, unknown: 'its key was voided' };
    case 'rejected':
      // The rail has another order under the key: what became of that, a look-up says.
      return isDuplicateCode(answer.code)
        ? { id, unknown: `the rail calls it a duplicate (${answer.code})` }
        : { id, fact: answer };
    case 'accepted':
      return { id, fact: answer };
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function findRail(rails: Rails, name: string): Rail {
  const rail = rails.find(name);
  if (rail === undefined) throw new Error(`There is no rail named ${name}.`);
  return rail;
}

export function groupByRail<T extends { readonly rail: string | null }>(
  rails: Rails,
  payouts: readonly T[],
): ReadonlyMap<Rail, readonly T[]> {
  return Map.groupBy(payouts, ({ rail }) => findRail(rails, rail ?? ''));
}
