import { isDeepStrictEqual } from 'node:util';
import { groupsOf } from '../domain/batch.js';
import { type PayoutFact, payoutOfKey, railKey } from '../domain/payout.js';
import type { LookupAnswer, Rail } from '../rails/rail.js';
import { messageOf } from './failure.js';

export type LookUps = {
  /** By the id of the payout. */
  readonly answers: ReadonlyMap<string, LookupAnswer>;
  /** Why a payout has no answer; what is known of that is the last failure. */
  readonly failure: string;
};

/** Finding one key of 500 that the rail cannot answer takes 18 calls; two of them fit. */
const maximumCalls = 40;

/** A rail that does not answer at all takes 5 s to show it: then nothing is asked again. */
const splitLimitMs = 4_000;

/**
 * Asks the rail about payouts, in its bulk size. A request that fails is repeated in halves, so
 * that one key which the rail cannot answer leaves the others their answers.
 */
export async function lookUp(
  rail: Rail,
  payouts: readonly { readonly id: string }[],
): Promise<LookUps> {
  const keys = payouts.map(({ id }) => railKey(id));
  const answers = new Map<string, LookupAnswer>();
  const startedMs = performance.now();
  let failure = 'the answer does not mention it';
  let callsLeft = maximumCalls;
  async function ask(part: readonly string[]): Promise<void> {
    callsLeft -= 1;
    try {
      for (const [id, answer] of answersTo(part, await rail.lookup(part))) answers.set(id, answer);
    } catch (error) {
      failure = messageOf(error);
      const middle = Math.ceil(part.length / 2);
      for (const half of [part.slice(0, middle), part.slice(middle)]) {
        const isTimeUp = performance.now() - startedMs > splitLimitMs;
        if (part.length > 1 && callsLeft > 0 && !isTimeUp) await ask(half);
      }
    }
  }
  for (const slice of groupsOf(keys, rail.limits.bulkSize)) await ask(slice);
  return { answers, failure };
}

/** The answers to what was asked, by payout. One that says two things of an order says nothing of it. */
export function answersTo<Answer extends { readonly key: string }>(
  asked: readonly string[],
  answers: readonly Answer[],
): ReadonlyMap<string, Answer> {
  const answersOf = Map.groupBy(answers, ({ key }) => key);
  const clear = asked.flatMap((key): (readonly [string, Answer])[] => {
    const [first, ...others] = answersOf.get(key) ?? [];
    const isClear = first !== undefined && others.every((one) => isDeepStrictEqual(one, first));
    return isClear ? [[payoutOfKey(key), first]] : [];
  });
  return new Map(clear);
}

/** What a look-up establishes; undefined where it leaves the outcome open. */
export function factFromLookup(answer: LookupAnswer | undefined): PayoutFact | undefined {
  return answer === undefined || answer.kind === 'not_found' ? undefined : answer;
}
