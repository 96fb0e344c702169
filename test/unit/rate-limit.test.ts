import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createLimiter, takeRequest } from '../../src/api/rateLimit.js';

const quotas = fc.record({
  perSecond: fc.integer({ min: 1, max: 400 }),
  burst: fc.integer({ min: 1, max: 40 }),
});
/** Pauses between requests in milliseconds: none, short ones, and some of a few seconds. */
const pauses = fc.array(fc.oneof(fc.constant(0), fc.nat(20), fc.nat(5_000)), { maxLength: 150 });

/** Takes from a quota at these times. */
function takeAll(quota: { readonly perSecond: number; readonly burst: number }, times: number[]) {
  let fullAt = 0;
  return times.map((atMs) => {
    const taken = takeRequest(quota, fullAt, atMs);
    fullAt = taken.fullAt;
    return { atMs, ...taken };
  });
}

/** The times that result from the pauses. */
function timesOf(gaps: readonly number[]): number[] {
  let atMs = 1_000;
  return gaps.map((gap) => {
    atMs += gap;
    return atMs;
  });
}

describe('a quota', () => {
  test('allows at most burst + rate × time in any window, and never less than that', () => {
    fc.assert(
      fc.property(quotas, pauses, (quota, gaps) => {
        const allowed: number[] = [];
        for (const { atMs, isAllowed } of takeAll(quota, timesOf(gaps))) {
          const candidates = [...allowed, atMs];
          // No window that ends with this request may contain more; the unit is a thousandth of a request.
          const fits = candidates.every((from, index) => {
            const count = candidates.length - index;
            return count * 1000 <= quota.burst * 1000 + quota.perSecond * (atMs - from);
          });
          expect(isAllowed).toBe(fits);
          if (isAllowed) allowed.push(atMs);
        }
      }),
    );
  });

  test('never refuses a caller that keeps to its rate', () => {
    fc.assert(
      fc.property(quotas, fc.integer({ min: 1, max: 200 }), (quota, count) => {
        const pause = Math.ceil(1000 / quota.perSecond);
        const steady = timesOf(Array.from({ length: count }, () => pause));
        expect(takeAll(quota, steady).every(({ isAllowed }) => isAllowed)).toBe(true);
      }),
    );
  });

  test('reports how many requests are left, when it is full again and when to retry', () => {
    fc.assert(
      fc.property(quotas, pauses, (quota, gaps) => {
        const last = takeAll(quota, timesOf(gaps)).at(-1);
        if (last === undefined) return;
        const { atMs, fullAt, remaining, fullInMs, retryInMs } = last;
        const isAllowedAt = (count: number, later: number) => {
          const requests = Array.from({ length: count }, () => atMs + later);
          let state = fullAt;
          return requests.every((time) => {
            const taken = takeRequest(quota, state, time);
            state = taken.fullAt;
            return taken.isAllowed;
          });
        };
        expect(isAllowedAt(remaining, 0)).toBe(true);
        expect(isAllowedAt(remaining + 1, 0)).toBe(false);
        expect(isAllowedAt(quota.burst, fullInMs)).toBe(true);
        if (retryInMs > 0) {
          expect(isAllowedAt(1, retryInMs)).toBe(true);
          expect(isAllowedAt(1, retryInMs - 1)).toBe(false);
        }
      }),
    );
  });
});

describe('a limiter', () => {
  const limits = { perSecond: 2, burst: 3, inFlight: 2, itemsPerSecond: 1_000 };

  /** A limiter whose clock stands still until it is moved. */
  function createWatched(changed: Partial<typeof limits> = {}) {
    let nowMs = 0;
    const limiter = createLimiter({ ...limits, ...changed }, () => nowMs);
    const pass = (accountId: string) => {
      const admission = limiter.enter(accountId);
      if (admission.refusal === undefined) limiter.leave(accountId);
      return admission;
    };
    return {
      limiter,
      pass,
      advance: (ms: number) => {
        nowMs += ms;
      },
    };
  }

  test('reports in structured fields what is allowed and what is left', () => {
    const { pass } = createWatched();
    const headersSent = [pass('a'), pass('a'), pass('a'), pass('a')].map(({ headers }) => headers);
    const policy = { 'RateLimit-Policy': '"default";q=3;w=2' };
    expect(headersSent).toEqual([
      { ...policy, RateLimit: '"default";r=2;t=1' },
      { ...policy, RateLimit: '"default";r=1;t=1' },
      { ...policy, RateLimit: '"default";r=0;t=2' },
      { ...policy, RateLimit: '"default";r=0;t=2', 'Retry-After': '1' },
    ]);
  });

  test('refuses a key that is too fast until Retry-After has passed, and no other key', () => {
    const { pass, advance } = createWatched();
    const codes = () => [pass('a'), pass('b')].map(({ refusal }) => refusal?.code);
    for (let sent = 0; sent < limits.burst; sent += 1) expect(pass('a').refusal).toBeUndefined();
    expect(codes()).toEqual(['rate_limited', undefined]);
    advance(499);
    expect(codes()).toEqual(['rate_limited', undefined]);
    advance(1);
    expect(codes()).toEqual([undefined, undefined]);
    expect(codes()).toEqual(['rate_limited', undefined]);
  });

  test('refuses a key with too many requests in flight until one of them is answered', () => {
    const { limiter } = createWatched({ burst: 100 });
    const codes = () =>
      [limiter.enter('a'), limiter.enter('b')].map(({ refusal }) => refusal?.code);
    expect(codes()).toEqual([undefined, undefined]);
    expect(codes()).toEqual([undefined, undefined]);
    expect(limiter.enter('a')).toMatchObject({
      refusal: { code: 'too_many_in_flight' },
      headers: { 'Retry-After': '1' },
    });
    limiter.leave('a');
    expect(codes()).toEqual([undefined, 'too_many_in_flight']);
  });

  test('counts items separately, and reports the state of both policies', () => {
    const { limiter, pass, advance } = createWatched();
    pass('a');
    const policy = { 'RateLimit-Policy': '"default";q=3;w=2, "items";q=21000;w=21' };
    expect(limiter.takeItems('a', 10_000)).toEqual({
      headers: { ...policy, RateLimit: '"default";r=2;t=1, "items";r=11000;t=10' },
      refusal: undefined,
    });
    expect(limiter.takeItems('a', 10_000).refusal).toBeUndefined();
    const refused = limiter.takeItems('a', 10_000);
    expect(refused).toMatchObject({
      headers: { 'Retry-After': '9', RateLimit: '"default";r=2;t=1, "items";r=1000;t=20' },
      refusal: { code: 'rate_limited', expected: expect.stringContaining('items a second') },
    });
    // Requests without items are still allowed, and so are other accounts.
    expect(pass('a').refusal).toBeUndefined();
    expect(limiter.takeItems('b', 10_000).refusal).toBeUndefined();
    advance(8_999);
    expect(limiter.takeItems('a', 10_000).refusal).toBeDefined();
    advance(1);
    expect(limiter.takeItems('a', 10_000).refusal).toBeUndefined();
  });

  test('charges items afterwards beyond what is left, and refuses more until that has refilled', () => {
    const { limiter, advance } = createWatched();
    const admission = limiter.takeItems('a', 22_000, 'afterwards');
    expect(admission.refusal).toBeUndefined();
    expect(admission.headers['RateLimit']).toBe('"default";r=3;t=0, "items";r=0;t=22');
    expect(Object.keys(admission.headers)).not.toContain('Retry-After');
    const codes = () => limiter.takeItems('a', 1).refusal?.code;
    expect(codes()).toBe('rate_limited');
    advance(1_000);
    expect(codes()).toBe('rate_limited');
    advance(1);
    expect(codes()).toBeUndefined();
  });

  test('never refuses a full batch for ever, however low its item rate is set', () => {
    const { limiter } = createWatched({ itemsPerSecond: 1 });
    expect(limiter.takeItems('a', 10_485).refusal).toBeUndefined();
  });

  test('forgets accounts without allowing any of them more than its limits', () => {
    const { limiter, pass, advance } = createWatched();
    limiter.enter('busy');
    limiter.enter('busy');
    advance(60_000);
    for (let sent = 0; sent < limits.burst; sent += 1) pass('fast');
    limiter.takeItems('heavy', 21_000);
    // The limiter remembers 10,000 keys, and then searches all of them for each new one.
    for (let other = 0; other < 11_000; other += 1) pass(`key_${other}`);
    expect(pass('busy').refusal?.code).toBe('too_many_in_flight');
    expect(pass('fast').refusal?.code).toBe('rate_limited');
    expect(limiter.takeItems('heavy', 1).refusal?.code).toBe('rate_limited');
  });
});
