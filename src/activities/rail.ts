import { Context } from '@temporalio/activity';
import { beneficiariesOf } from '../db/beneficiaries.js';
import { type Database, transaction } from '../db/client.js';
import { insertNews, type StoredFact } from '../db/inbox.js';
import {
  beginSubmission,
  lockPayouts,
  parkPayouts,
  postponeWake,
  type Submission,
} from '../db/payouts.js';
import { type RailFact, railKey } from '../domain/payout.js';
import type { LookupAnswer, Rail, SubmitOutcome, Transfer } from '../rails/rail.js';
import type { Rails } from '../rails/registry.js';
import { applyFacts, frozenOf } from './facts.js';
import { notYet } from './failure.js';
import type { DriverInput } from './ledger.js';
import type { PayoutStep } from './step.js';

export type RailDeps = { readonly database: Database; readonly rails: Rails };

/** A live retry needs this much to show itself before the sweep looks after the row. */
const wakeMarginMs = 30_000;

/** The activities that call a rail: at most one look-up and one call each. */
export function railActivities({ database, rails }: RailDeps) {
  return {
    /**
     * Hands payouts to their rail, decided by their rows: what was never started is sent,
     * what was started and has no answer is looked up first. A payout whose outcome stays
     * unknown makes the activity fail, to be retried under the same key.
     */
    submitPayouts: async ({ driver, ids }: DriverInput): Promise<readonly PayoutStep[]> => {
      const wakeInMs = nextAttemptInMs() + wakeMarginMs;
      const submissions = await beginSubmission(database, driver, ids, wakeInMs);
      const facts = new Map<string, RailFact>();
      const unknown: string[] = [];
      for (const [rail, group] of groupByRail(rails, submissions)) {
        for (const result of await submitGroup(database, rail, group)) {
          if (result.fact === undefined) unknown.push(`${result.id}: ${result.detail}`);
          else facts.set(result.id, result.fact);
        }
      }
      const steps = await transaction(database, (sql) => applyFacts(sql, driver, ids, facts));
      const open = steps.filter((step) => step.status === 'processing' && step.attention === null);
      if (open.length > 0 && unknown.length > 0) {
        throw notYet(`The rail's answer is unknown for ${unknown.join('; ')}`);
      }
      return steps;
    },

    /**
     * Asks the rail about one payout and keeps what it says as if it had called back. Fails
     * until there is something to say: its retries are the polling.
     */
    pollRail: async ({ payoutId }: { readonly payoutId: string }): Promise<void> => {
      await postponeWake(database, payoutId, nextAttemptInMs() + wakeMarginMs * 3);
      const [row] = await lockPayouts(database, payoutId, [payoutId]);
      if (row === undefined || row.rail === null) return;
      const [answer] = await findRail(rails, row.rail).lookup([railKey(payoutId)]);
      const fact = answer === undefined ? undefined : newsOf(answer);
      if (fact === undefined) throw notYet(`The rail has no news of ${payoutId}.`);
      await insertNews(database, [
        {
          rail: row.rail,
          railEventId: `poll:${payoutId}:${fact.kind}`,
          railKey: railKey(payoutId),
          payoutId,
          fact,
        },
      ]);
    },
  };
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

function groupByRail(
  rails: Rails,
  submissions: readonly Submission[],
): ReadonlyMap<Rail, readonly Submission[]> {
  const groups = new Map<Rail, Submission[]>();
  for (const submission of submissions) {
    const rail = findRail(rails, submission.rail ?? '');
    groups.set(rail, [...(groups.get(rail) ?? []), submission]);
  }
  return groups;
}

type Submitted =
  | { readonly id: string; readonly fact: RailFact }
  | { readonly id: string; readonly fact?: undefined; readonly detail: string };

/** Looks up what was started before, and sends what the rail has not, in its bulk size. */
async function submitGroup(
  database: Database,
  rail: Rail,
  group: readonly Submission[],
): Promise<readonly Submitted[]> {
  const results: Submitted[] = [];
  const toSend = group.filter((submission) => !submission.isRepeated);
  const repeated = group.filter((submission) => submission.isRepeated);
  for (const chunk of chunksOf(repeated, rail.limits.bulkSize)) {
    const answers = await rail.lookup(chunk.map((submission) => railKey(submission.id)));
    const byKey = new Map(answers.map((answer) => [answer.key, answer]));
    for (const submission of chunk) {
      const answer = byKey.get(railKey(submission.id));
      const fact = answer === undefined ? undefined : factOf(answer);
      if (fact !== undefined) results.push({ id: submission.id, fact });
      else if (keyIsRemembered(rail, submission)) toSend.push(submission);
      else results.push(await parkUnknown(database, submission));
    }
  }
  for (const chunk of chunksOf(toSend, rail.limits.bulkSize)) {
    results.push(...(await send(database, rail, chunk)));
  }
  return results;
}

/** "Not found" is no rejection: the key may be sent again only while the rail knows keys. */
export function keyIsRemembered(
  rail: Rail,
  submission: { readonly sinceFirstAttemptMs: number },
): boolean {
  return submission.sinceFirstAttemptMs < rail.limits.keyRetentionMs;
}

async function parkUnknown(database: Database, { id }: Submission): Promise<Submitted> {
  const detail = 'The rail does not know the key, and it is too old to be sent again.';
  await parkPayouts(database, [{ id, reason: 'outcome_unknown', detail }]);
  return { id, detail };
}

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
    const { receiveMinor, destinationCurrency } = frozenOf(submission);
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
  if (outcome === undefined) return { id, detail: 'the answer does not mention it' };
  switch (outcome.outcome) {
    case 'accepted':
      return { id, fact: { kind: 'accepted', reference: outcome.reference } };
    case 'rejected':
      return { id, fact: { kind: 'rejected', code: outcome.code, reason: outcome.reason } };
    case 'voided':
      // A cancellation that is being written is found by the next attempt, or else the void is.
      return { id, detail: 'its key was voided' };
    case 'unknown':
      return { id, detail: outcome.detail };
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

/** What a poll adds to what we know: that the rail has accepted a sent payout is no news. */
function newsOf(answer: LookupAnswer): StoredFact | undefined {
  const fact = factOf(answer);
  switch (fact?.kind) {
    case 'rejected':
      return fact;
    case 'settled':
    case 'returned':
      return { ...fact, amountMinor: fact.amountMinor.toString() };
    case 'accepted':
    case 'voided':
    case undefined:
      return undefined;
  }
}

function chunksOf<T>(items: readonly T[], size: number): readonly (readonly T[])[] {
  const chunks: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += size) {
    chunks.push(items.slice(start, start + size));
  }
  return chunks;
}
