import { isDeepStrictEqual } from 'node:util';
import { groupsOf } from '../domain/batch.js';
import type { PayoutFact } from '../domain/factEffect.js';
import { payoutOfKey, railKey } from '../domain/payout.js';
import type { LookupAnswer, Rail } from '../rails/rail.js';
import { messageOf } from './failure.js';

export type LookUps = {
  /** By payout id. */
  readonly answers: ReadonlyMap<string, LookupAnswer>;
  /** Why payouts have no answer. Only the last failure is kept. */
  readonly failure: string;
};

/** Maximum number of calls. Isolating one key in 500 that the rail cannot answer takes 18; two fit. */
const maximumCalls = 40;

/** After this no request is repeated in halves: a rail that does not answer at all takes 5 s to time out. */
const splitLimitMs = 4_000;

/**
 * Looks payouts up at the rail, in its bulk size. A request that fails is repeated in halves, so
 * that one key the rail cannot answer does not cost the other keys their answers.
 */
export async function lookUp(
  rail: Rail,
  payouts: readonly { readonly id: string }[],
): Promise<LookUps> {
  const keys = payouts.map(({ id }) => railKey(id));
  const answers = new Map<string, LookupAnswer>();
  const startedMs = performance.now();
  let failure = 'the answer does not mention the order';
  let callsLeft = maximumCalls;
  async function request(part: readonly string[]): Promise<void> {
    callsLeft -= 1;
    try {
      for (const [id, answer] of answersTo(part, await rail.lookup(part))) answers.set(id, answer);
    } catch (error) {
      failure = messageOf(error);
      const middle = Math.ceil(part.length / 2);
      for (const half of [part.slice(0, middle), part.slice(middle)]) {
        const isTimeUp = performance.now() - startedMs > splitLimitMs;
        if (part.length > 1 && callsLeft > 0 && !isTimeUp) await request(half);
      }
    }
  }
  for (const slice of groupsOf(keys, rail.limits.bulkSize)) await request(slice);
  return { answers, failure };
}

/** Returns the answers to the requested keys, by payout. Contradictory answers to a key are discarded. */
export function answersTo<Answer extends { readonly key: string }>(
  keys: readonly string[],
  answers: readonly Answer[],
): ReadonlyMap<string, Answer> {
  const answersOf = Map.groupBy(answers, ({ key }) => key);
  const clear = keys.flatMap((key): (readonly [string, Answer])[] => {
    const [first, ...others] = answersOf.get(key) ?? [];
    const isClear = first !== undefined && others.every((one) => isDeepStrictEqual(one, first));
    return isClear ? [[payoutOfKey(key), first]] : [];
  });
  return new Map(clear);
}

/** Returns the fact that a lookup establishes, or undefined if it leaves the outcome open. */
export function factFromLookup(answer: LookupAnswer | undefined): PayoutFact | undefined {
  return answer === undefined || answer.kind === 'not_found' ? undefined : answer;
}
