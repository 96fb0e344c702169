import { type Refusal, refuse } from '../domain/refusal.js';

export type RateLimits = {
  /** Requests a second that an account may sustain. */
  readonly perSecond: number;
  /** Requests that it may send at once, after a pause. */
  readonly burst: number;
  /** Requests of an account that are being answered at one time. */
  readonly inFlight: number;
  /** Items a second, which are what long requests are made of: see `weightOf`. */
  readonly itemsPerSecond: number;
};

type Quota = Pick<RateLimits, 'perSecond' | 'burst'>;

/** One request in ticks. A millisecond gives `perSecond` ticks back: whole numbers, no rounding. */
const ticksPerRequest = 1000;

/**
 * Takes requests from a quota (GCRA, ITU-T I.371): `fullAt` is the tick at which all of the
 * burst is available again, the only state there is. In any window an account gets at most
 * burst + rate × time requests, and is refused only when the next ones would be more.
 */
export function takeRequest({ perSecond, burst }: Quota, fullAt: number, nowMs: number, count = 1) {
  const now = Math.floor(nowMs) * perSecond;
  const depth = burst * ticksPerRequest;
  const next = Math.max(fullAt, now) + count * ticksPerRequest;
  const isAllowed = next - now <= depth;
  const used = (isAllowed ? next : fullAt) - now;
  return {
    isAllowed,
    fullAt: now + used,
    remaining: Math.max(0, Math.floor((depth - used) / ticksPerRequest)),
    fullInMs: Math.ceil(used / perSecond),
    retryInMs: isAllowed ? 0 : Math.ceil((next - now - depth) / perSecond),
  };
}

type Taken = ReturnType<typeof takeRequest>;

/** Whether a request is let in, and what its answer says about the limits. */
export type Admission = {
  readonly headers: Readonly<Record<string, string>>;
  readonly refusal: Refusal | undefined;
};

/** Decoding or writing so many bytes takes about as long as judging one payout of a batch. */
const bytesPerItem = 800;

/** What a body or an answer weighs, in items. A usual one weighs nothing beside its request. */
export function weightOf(bytes: number): number {
  return Math.floor(bytes / bytesPerItem);
}

const manyInOne = 'To send many payouts, use a batch.';
const aboutItems = `Each payout of a batch is an item, and each ${bytesPerItem} bytes of a body or an answer.`;

/** Two of the longest batches, each of 10,000 payouts or 8 MiB. */
const itemBurst = 21_000;

/** Accounts in memory. More call within one burst only where more machines are needed anyway. */
const rememberedAccounts = 10_000;

/** Counts the requests of this process: with several processes each grants the limits anew. */
export function createLimiter(limits: RateLimits, nowMs: () => number = () => performance.now()) {
  const uses = new Map<string, { fullAt: number; itemsFullAt: number; inFlight: number }>();
  const { itemsPerSecond } = limits;
  const items = { perSecond: itemsPerSecond, burst: Math.max(itemBurst, 2 * itemsPerSecond) };

  function useOf(accountId: string) {
    const known = uses.get(accountId);
    if (known !== undefined) return known;
    if (uses.size >= rememberedAccounts) forgetIdle();
    const use = { fullAt: 0, itemsFullAt: 0, inFlight: 0 };
    uses.set(accountId, use);
    return use;
  }

  /** An account that has all of its quotas and waits for nothing is as good as a new one. */
  function forgetIdle() {
    const now = Math.floor(nowMs());
    for (const [accountId, use] of uses) {
      const isWhole = use.fullAt <= now * limits.perSecond;
      const hasItems = use.itemsFullAt <= now * itemsPerSecond;
      if (use.inFlight === 0 && isWhole && hasItems) uses.delete(accountId);
    }
  }

  return {
    /** Connections that an account keeps: as many idle ones as it can have at work. */
    connections: 2 * limits.inFlight,
    /** One more request of an account, whichever key it has. Each that is let in leaves again. */
    enter: (accountId: string): Admission => {
      const use = useOf(accountId);
      const taken = takeRequest(limits, use.fullAt, nowMs());
      use.fullAt = taken.fullAt;
      const headers = headersOf(['default', limits, taken]);
      if (!taken.isAllowed)
        return refused(headers, taken.retryInMs, tooFast(limits, 'requests', manyInOne));
      if (use.inFlight >= limits.inFlight) return refused(headers, 1_000, tooMany(limits));
      use.inFlight += 1;
      return { headers, refusal: undefined };
    },
    leave: (accountId: string): void => {
      useOf(accountId).inFlight -= 1;
    },
    /**
     * Items that a request of the account is made of. Those of an answer, which are known too
     * late to refuse it, are taken `afterwards`: until they are made good the next are refused.
     */
    takeItems: (accountId: string, count: number, how?: 'afterwards'): Admission => {
      const use = useOf(accountId);
      const quota = how === 'afterwards' ? { ...items, burst: Number.POSITIVE_INFINITY } : items;
      const { fullAt, isAllowed, retryInMs } = takeRequest(quota, use.itemsFullAt, nowMs(), count);
      use.itemsFullAt = fullAt;
      const left = takeRequest(items, fullAt, nowMs(), 0);
      const requests = takeRequest(limits, use.fullAt, nowMs(), 0);
      const headers = headersOf(['default', limits, requests], ['items', items, left]);
      return isAllowed
        ? { headers, refusal: undefined }
        : refused(headers, retryInMs, tooFast(items, 'items', aboutItems));
    },
  };
}

export type Limiter = ReturnType<typeof createLimiter>;

/** How each policy stands: the fields of draft-ietf-httpapi-ratelimit-headers-11. */
function headersOf(
  ...policies: readonly (readonly [name: string, quota: Quota, taken: Taken])[]
): Readonly<Record<string, string>> {
  const quotas = policies.map(
    ([name, { burst, perSecond }]) => `"${name}";q=${burst};w=${Math.ceil(burst / perSecond)}`,
  );
  const left = policies.map(
    ([name, , { remaining, fullInMs }]) => `"${name}";r=${remaining};t=${secondsOf(fullInMs)}`,
  );
  return { 'RateLimit-Policy': quotas.join(', '), RateLimit: left.join(', ') };
}

function refused(headers: Admission['headers'], retryInMs: number, refusal: Refusal): Admission {
  return { headers: { ...headers, 'Retry-After': `${secondsOf(retryInMs)}` }, refusal };
}

function tooFast({ perSecond, burst }: Quota, what: string, hint: string): Refusal {
  const expected = `at most ${perSecond} ${what} a second by this account, and ${burst} at once`;
  return refuse('rate_limited', { expected, hint: `Send it again after Retry-After. ${hint}` });
}

function tooMany({ inFlight }: RateLimits): Refusal {
  return refuse('too_many_in_flight', {
    expected: `at most ${inFlight} requests at a time by this account`,
    hint: `Wait for answers, and read them, before sending more. ${manyInOne}`,
  });
}

function secondsOf(ms: number): number {
  return Math.ceil(ms / 1000);
}
