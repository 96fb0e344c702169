import { type Refusal, refuse } from '../domain/refusal.js';

/** What an account may send: the values are `rateLimits` in config.ts. */
export type RateLimits = {
  /** Requests per second that an account may sustain. */
  readonly perSecond: number;
  /** Requests that it may send in one burst, after a pause. */
  readonly burst: number;
  /** Maximum number of requests of an account in flight at a time. */
  readonly inFlight: number;
  /** Items per second. They measure the work of long requests: see `weightOf`. */
  readonly itemsPerSecond: number;
};

type Quota = Pick<RateLimits, 'perSecond' | 'burst'>;

/**
 * One request in ticks. A millisecond refills `perSecond` ticks: all numbers are integers, none is rounded.
 */
const ticksPerRequest = 1000;

/**
 * Takes requests from a quota (GCRA, ITU-T I.371). The only state is `fullAt`, the tick at which the whole
 * burst is available again. In any window an account gets at most burst + rate × time requests, and is
 * refused only if the next ones would exceed that.
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

/** Whether a request is admitted, and the headers that report the limits. */
export type Admission = {
  readonly headers: Readonly<Record<string, string>>;
  readonly refusal: Refusal | undefined;
};

/** Bytes per item: decoding or writing them takes about as long as validating one payout of a batch. */
const bytesPerItem = 800;

/** Returns the weight of a body or a response in items. That of a typical one is negligible. */
export function weightOf(bytes: number): number {
  return Math.floor(bytes / bytesPerItem);
}

const manyInOne = 'To send many payouts, use a batch.';
const aboutItems = `Each payout of a batch is an item, and each ${bytesPerItem} bytes of a body or a response.`;

/** Items that one burst may use: two of the longest batches, each of 10,000 payouts or 8 MiB. */
const itemBurst = 21_000;

/**
 * Number of accounts in memory at which idle ones are forgotten. Where more accounts call within one burst,
 * more machines are needed anyway.
 */
const maxRememberedAccounts = 10_000;

/** Creates the limiter of this process. With several processes, each one grants the limits anew. */
export function createLimiter(limits: RateLimits, nowMs: () => number = () => performance.now()) {
  const uses = new Map<string, { fullAt: number; itemsFullAt: number; inFlight: number }>();
  const { itemsPerSecond } = limits;
  const items = { perSecond: itemsPerSecond, burst: Math.max(itemBurst, 2 * itemsPerSecond) };

  function useOf(accountId: string) {
    const known = uses.get(accountId);
    if (known !== undefined) return known;
    if (uses.size >= maxRememberedAccounts) forgetIdle();
    const use = { fullAt: 0, itemsFullAt: 0, inFlight: 0 };
    uses.set(accountId, use);
    return use;
  }

  /** Forgets accounts with full quotas and no requests in flight: they are no different from new ones. */
  function forgetIdle() {
    const now = Math.floor(nowMs());
    for (const [accountId, use] of uses) {
      const isWhole = use.fullAt <= now * limits.perSecond;
      const hasItems = use.itemsFullAt <= now * itemsPerSecond;
      if (use.inFlight === 0 && isWhole && hasItems) uses.delete(accountId);
    }
  }

  return {
    /** Maximum number of connections of an account: for each request in flight, one in use and one idle. */
    connections: 2 * limits.inFlight,
    /** Admits one more request of an account, whichever key it has. Each admitted request must `leave`. */
    enter: (accountId: string): Admission => {
      const use = useOf(accountId);
      const taken = takeRequest(limits, use.fullAt, nowMs());
      use.fullAt = taken.fullAt;
      const headers = headersOf(['default', limits, taken]);
      if (!taken.isAllowed) return refused(headers, taken.retryInMs, tooFast(limits, 'requests'));
      if (use.inFlight >= limits.inFlight) return refused(headers, 1_000, tooMany(limits));
      use.inFlight += 1;
      return { headers, refusal: undefined };
    },
    leave: (accountId: string): void => {
      useOf(accountId).inFlight -= 1;
    },
    /**
     * Charges items to an account. Those of a response are known too late to refuse it, so they are charged
     * `afterwards`: the next requests are refused until the quota has recovered.
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

/** Reports the state of each quota in the fields of draft-ietf-httpapi-ratelimit-headers-11. */
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

function tooFast({ perSecond, burst }: Quota, what: string, about = manyInOne): Refusal {
  const expected = `at most ${perSecond} ${what} a second by this account, in bursts of up to ${burst}`;
  const hint = `Wait for the number of seconds in Retry-After, then retry. ${about}`;
  return refuse('rate_limited', { expected, hint });
}

function tooMany({ inFlight }: RateLimits): Refusal {
  return refuse('too_many_in_flight', {
    expected: `at most ${inFlight} requests at a time by this account`,
    hint: `Wait for responses, and read them, before you send more. ${manyInOne}`,
  });
}

function secondsOf(ms: number): number {
  return Math.ceil(ms / 1000);
}
