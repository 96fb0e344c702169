import { type Refusal, refuse } from '../domain/refusal.js';

export type RateLimits = {
  /** Requests a second that a key may go on sending. */
  readonly perSecond: number;
  /** Requests that it may send at once, after a pause. */
  readonly burst: number;
  /** Requests of a key that are being answered at one time. */
  readonly inFlight: number;
};

/** One request in ticks. A millisecond gives `perSecond` ticks back: whole numbers, no rounding. */
const ticksPerRequest = 1000;

/**
 * Takes one request from a quota (GCRA, ITU-T I.371): `fullAt` is the tick at which all of the
 * burst is available again, the only state there is. In any window a key gets at most
 * burst + rate × time requests, and is refused only when the next one would be more.
 */
export function takeRequest(
  { perSecond, burst }: Pick<RateLimits, 'perSecond' | 'burst'>,
  fullAt: number,
  nowMs: number,
) {
  const now = Math.floor(nowMs) * perSecond;
  const depth = burst * ticksPerRequest;
  const next = Math.max(fullAt, now) + ticksPerRequest;
  const isAllowed = next - now <= depth;
  const used = (isAllowed ? next : fullAt) - now;
  return {
    isAllowed,
    fullAt: now + used,
    remaining: Math.floor((depth - used) / ticksPerRequest),
    fullInMs: Math.ceil(used / perSecond),
    retryInMs: isAllowed ? 0 : Math.ceil((next - now - depth) / perSecond),
  };
}

/** Whether a request is let in, and what its answer says about the limit. */
export type Admission = {
  readonly headers: Readonly<Record<string, string>>;
  readonly refusal: Refusal | undefined;
};

export type Limiter = {
  /** One more request of a key. Whoever is let in leaves again. */
  readonly enter: (keyId: string) => Admission;
  readonly leave: (keyId: string) => void;
};

/** Keys in memory. More call within one burst only where more machines are needed anyway. */
const rememberedKeys = 10_000;

/** Counts the requests of this process: with several processes each grants the limits anew. */
export function createLimiter(
  limits: RateLimits,
  nowMs: () => number = () => performance.now(),
): Limiter {
  const uses = new Map<string, { fullAt: number; inFlight: number }>();
  const policy = `"default";q=${limits.burst};w=${Math.ceil(limits.burst / limits.perSecond)}`;

  function useOf(keyId: string) {
    const known = uses.get(keyId);
    if (known !== undefined) return known;
    if (uses.size >= rememberedKeys) forgetIdle();
    const use = { fullAt: 0, inFlight: 0 };
    uses.set(keyId, use);
    return use;
  }

  /** A key that has its whole burst and waits for nothing is as good as a new one. */
  function forgetIdle() {
    const now = Math.floor(nowMs()) * limits.perSecond;
    for (const [keyId, use] of uses) {
      if (use.inFlight === 0 && use.fullAt <= now) uses.delete(keyId);
    }
  }

  return {
    enter: (keyId) => {
      const use = useOf(keyId);
      const taken = takeRequest(limits, use.fullAt, nowMs());
      use.fullAt = taken.fullAt;
      const headers = {
        'RateLimit-Policy': policy,
        RateLimit: `"default";r=${taken.remaining};t=${secondsOf(taken.fullInMs)}`,
      };
      if (!taken.isAllowed) {
        const retry = { 'Retry-After': `${secondsOf(taken.retryInMs)}` };
        return { headers: { ...headers, ...retry }, refusal: tooFast(limits) };
      }
      if (use.inFlight >= limits.inFlight) {
        return { headers: { ...headers, 'Retry-After': '1' }, refusal: tooMany(limits) };
      }
      use.inFlight += 1;
      return { headers, refusal: undefined };
    },
    leave: (keyId) => {
      useOf(keyId).inFlight -= 1;
    },
  };
}

function tooFast({ perSecond, burst }: RateLimits): Refusal {
  return refuse('rate_limited', {
    expected: `at most ${perSecond} requests a second with this key, and ${burst} at once`,
    detail: 'Send it again after Retry-After. Many payouts go in one batch.',
  });
}

function tooMany({ inFlight }: RateLimits): Refusal {
  return refuse('too_many_in_flight', {
    expected: `at most ${inFlight} requests at a time with this key`,
    detail: 'Wait for answers before sending more. Many payouts go in one batch.',
  });
}

function secondsOf(ms: number): number {
  return Math.ceil(ms / 1000);
}
