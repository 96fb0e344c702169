import { Context } from '@temporalio/activity';
import { withheldForEver } from '../db/batches.js';
import { beneficiariesOf } from '../db/beneficiaries.js';
import { bulkTransaction, type Database, type Sql, transaction } from '../db/client.js';
import {
  beginSubmission,
  findPayoutById,
  parkPayouts,
  postponeWake,
  type Submission,
} from '../db/payouts.js';
import { groupsOf } from '../domain/batch.js';
import { type RailFact, railKey } from '../domain/payout.js';
import type { LookupAnswer, Rail, SubmitOutcome, Transfer } from '../rails/rail.js';
import type { Rails } from '../rails/registry.js';
import { cancelItems } from './cancellation.js';
import { applyFacts } from './facts.js';
import { notYet } from './failure.js';
import type { DriverInput } from './ledger.js';
import type { PayoutStep } from './step.js';

export type RailDeps = { readonly database: Database; readonly rails: Rails };

/** A live retry needs this much to show itself before the sweep looks after the row. */
const wakeMarginMs = 30_000;

/** The activities that call a rail: at most one look-up and one call each. */
export function railActivities(deps: RailDeps) {
  const { database, rails } = deps;
  return {
    /**
     * Hands payouts to their rail, decided by their rows: what was never started is sent,
     * what was started and has no answer is looked up first. A payout whose outcome stays
     * unknown makes the activity fail, to be retried under the same key.
     */
    submitPayouts: async ({ driver, ids }: DriverInput): Promise<readonly PayoutStep[]> => {
      const wakeInMs = nextAttemptInMs() + wakeMarginMs;
      const { steps, unknown, withheld } = await submitAll(deps, driver, ids, wakeInMs);
      const isOpen = steps.some((step) => step.status === 'processing' && step.attention === null);
      if (isOpen && withheld > 0) throw notYet('Its batch is paused or canceled.');
      if (isOpen && unknown.length > 0) {
        throw notYet(`The rail's answer is unknown for ${unknown.join('; ')}`);
      }
      return steps;
    },

    /**
     * Asks the rail about one payout and applies what it says. Fails until there is something
     * to say: its retries are the polling.
     */
    pollRail: async ({
      payoutId,
    }: {
      readonly payoutId: string;
    }): Promise<readonly PayoutStep[]> => {
      await postponeWake(database, payoutId, nextAttemptInMs() + wakeMarginMs * 3);
      const row = await findPayoutById(database, payoutId);
      if (row === undefined || row.rail === null) throw new Error(`${payoutId} has no rail.`);
      const [answer] = await findRail(rails, row.rail).lookup([railKey(payoutId)]);
      const fact = answer === undefined ? undefined : factOf(answer);
      if (fact === undefined || fact.kind === 'accepted') {
        throw notYet(`The rail has no news of ${payoutId}.`);
      }
      return transaction(database, (sql) =>
        applyFacts(sql, payoutId, [payoutId], new Map([[payoutId, fact]])),
      );
    },
  };
}

export type SubmittedAll = {
  readonly steps: readonly PayoutStep[];
  /** What the rail left open, with what is known about it. */
  readonly unknown: readonly string[];
  /** How many of the open ones were not given to the rail, because their batch is held back. */
  readonly withheld: number;
};

/** Hands payouts to their rail, decided by their rows, and records what it answers. */
export async function submitAll(
  { database, rails }: RailDeps,
  driver: string,
  ids: readonly string[],
  wakeInMs: number,
): Promise<SubmittedAll> {
  const submissions = await beginSubmission(database, driver, ids, wakeInMs);
  const groups = groupByRail(rails, submissions);
  const results = (
    await Promise.all([...groups].map(([rail, group]) => submitGroup(database, rail, group)))
  ).flat();
  const begun = new Set(submissions.map(({ id }) => id));
  await cancelWithheld(
    database,
    ids.filter((id) => !begun.has(id)),
  );
  const steps = await bulkTransaction(database, ids.length, (sql) =>
    record(sql, driver, ids, results),
  );
  const unknown = results.flatMap((result) =>
    'unknown' in result ? [`${result.id}: ${result.unknown}`] : [],
  );
  const withheld = steps.filter(({ id, status }) => status === 'processing' && !begun.has(id));
  return { steps, unknown, withheld: withheld.length };
}

/**
 * Cancels what is held back because its batch was canceled: whoever should have canceled it may
 * have died after saying so, and nobody else would ever release it.
 */
async function cancelWithheld(database: Database, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  const doomed = await withheldForEver(database, ids);
  if (doomed.length === 0) return;
  await bulkTransaction(database, doomed.length, (sql) => cancelItems(sql, doomed));
}

/** The facts, and what has to be left to a person, in one transaction. */
async function record(
  sql: Sql,
  driver: string,
  ids: readonly string[],
  results: readonly Submitted[],
): Promise<readonly PayoutStep[]> {
  const facts = new Map(
    results.flatMap((result) => ('fact' in result ? [[result.id, result.fact] as const] : [])),
  );
  const steps = await applyFacts(sql, driver, ids, facts);
  const lost = new Map(
    results.flatMap((result) => ('lost' in result ? [[result.id, result.lost] as const] : [])),
  );
  // Only what still waits for an answer: another attempt may have got one meanwhile.
  const parked = steps.flatMap(({ id, status }) => {
    const detail = status === 'processing' ? lost.get(id) : undefined;
    return detail === undefined ? [] : [{ id, reason: 'outcome_unknown', detail } as const];
  });
  await parkPayouts(sql, parked);
  const parkedOf = new Map(parked.map(({ id, reason, detail }) => [id, { reason, detail }]));
  return steps.map((step) => ({
    ...step,
    attention: step.attention ?? parkedOf.get(step.id) ?? null,
  }));
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

export function findRail(rails: Rails, name: string): Rail {
  const rail = rails.find(name);
  if (rail === undefined) throw new Error(`There is no rail named ${name}.`);
  return rail;
}

export function groupByRail<T extends { readonly rail: string | null }>(
  rails: Rails,
  payouts: readonly T[],
): ReadonlyMap<Rail, readonly T[]> {
  const groups = new Map<Rail, T[]>();
  for (const payout of payouts) {
    const rail = findRail(rails, payout.rail ?? '');
    const group = groups.get(rail);
    if (group === undefined) groups.set(rail, [payout]);
    else group.push(payout);
  }
  return groups;
}

/** A fact, no answer yet, or one that can no longer be had. */
type Submitted = { readonly id: string } & (
  | { readonly fact: RailFact }
  | { readonly unknown: string }
  | { readonly lost: string }
);

/** Looks up what was started before, and sends what the rail has not, in its bulk size. */
async function submitGroup(
  database: Database,
  rail: Rail,
  group: readonly Submission[],
): Promise<readonly Submitted[]> {
  const results: Submitted[] = [];
  const toSend = group.filter((submission) => !submission.isRepeated);
  const repeated = group.filter((submission) => submission.isRepeated);
  for (const slice of groupsOf(repeated, rail.limits.bulkSize)) {
    const answers = await rail.lookup(slice.map((submission) => railKey(submission.id)));
    const byKey = new Map(answers.map((answer) => [answer.key, answer]));
    for (const submission of slice) {
      const answer = byKey.get(railKey(submission.id));
      const fact = answer === undefined ? undefined : factOf(answer);
      if (fact !== undefined) results.push({ id: submission.id, fact });
      else if (keyIsRemembered(rail, submission)) toSend.push(submission);
      else results.push({ id: submission.id, lost: keyForgotten });
    }
  }
  for (const slice of groupsOf(toSend, rail.limits.bulkSize)) {
    results.push(...(await send(database, rail, slice)));
  }
  return results;
}

/** A call that begins while the key is remembered must also arrive while it is. */
const keyMarginMs = 60 * 60 * 1000;

/** "Not found" is no rejection: the key may be sent again only while the rail knows keys. */
export function keyIsRemembered(
  rail: Rail,
  submission: { readonly sinceFirstAttemptMs: number },
): boolean {
  return submission.sinceFirstAttemptMs < rail.limits.keyRetentionMs - keyMarginMs;
}

const keyForgotten = 'The rail does not know the key, and it is too old to be sent again.';

async function send(
  database: Database,
  rail: Rail,
  submissions: readonly Submission[],
): Promise<readonly Submitted[]> {
  if (submissions.length === 0) return [];
  const beneficiaries = await beneficiariesOf(
    database,
    submissions.map((submission) => submission.id),
  );
  const detailsOf = new Map(beneficiaries.map((row) => [row.payoutId, row.details]));
  const transfers = submissions.map((submission): Transfer => {
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
  const outcomes = new Map((await rail.submit(transfers)).map((outcome) => [outcome.key, outcome]));
  return submissions.map(({ id }) => submittedOf(id, outcomes.get(railKey(id))));
}

function submittedOf(id: string, outcome: SubmitOutcome | undefined): Submitted {
  if (outcome === undefined) return { id, unknown: 'the answer does not mention it' };
  switch (outcome.outcome) {
    case 'accepted':
      return { id, fact: { kind: 'accepted', reference: outcome.reference } };
    case 'rejected':
      return { id, fact: { kind: 'rejected', code: outcome.code, reason: outcome.reason } };
    case 'voided':
      // A cancellation that is being written is found by the next attempt, or else the void is.
      return { id, unknown: 'its key was voided' };
    case 'unknown':
      return { id, unknown: outcome.detail };
  }
}

/** What a look-up establishes; undefined where it leaves the outcome open. */
export function factOf(answer: LookupAnswer): RailFact | undefined {
  switch (answer.state) {
    case 'accepted':
      return { kind: 'accepted', reference: answer.reference };
    case 'settled':
      return { kind: 'settled', amountMinor: answer.amountMinor, currency: answer.currency };
    case 'returned':
      return { ...answer, kind: 'returned' };
    case 'rejected':
      return { kind: 'rejected', code: answer.code, reason: answer.reason };
    case 'voided':
      return { kind: 'rejected', code: 'VOID', reason: 'The key was voided at the rail.' };
    case 'not_found':
      return undefined;
  }
}
