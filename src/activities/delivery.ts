import { Context } from '@temporalio/activity';
import { isOutage } from '../db/client.js';
import {
  type AttemptResult,
  accountOfEvents,
  claimDueDeliveries,
  claimFirstAttempts,
  type DueDelivery,
  firstAttemptMs,
  type KnownPair,
  nextAttemptInMs,
  type Pair,
  pendingFirstAttempts,
  releaseClaims,
} from '../db/deliveries.js';
import { claimGroups, endGroups, endpointsOfGroups, releaseGroups } from '../db/deliveryGroups.js';
import { cancelAll, recipientOf } from '../db/webhookEndpoints.js';
import { webhookSecretsOpener } from '../db/webhookSecrets.js';
import { createKeyedLimit, type KeyedLimit } from '../keyedLimit.js';
import { count, observe } from '../metrics.js';
import { backoffAfter } from '../webhooks/retrySchedule.js';
import { factsOf, type Sender, type SendOutcome } from '../webhooks/sender.js';
import type { WebhookDeliveryInput } from '../workflows/messages.js';
import { createAttemptRecorder, gone } from './attemptRecorder.js';
import type { ActivityDeps, Announcement } from './deps.js';
import { createEndpointWakes } from './endpointWakes.js';
import { retryLater, withHeartbeat } from './failure.js';
import { type WebhookMessage, webhookMessages } from './webhookMessages.js';

type DeliveryDeps = Pick<ActivityDeps, 'database' | 'temporal' | 'log' | 'keyring'> & {
  readonly sender: Sender;
};

/**
 * Attempts of an account at a host at once, however many endpoints it has there: a batch goes out in
 * seconds, and does not flood its receiver. As many as the sender has connections for.
 */
const attemptsOfAccount = 16;

/** The same of all accounts together: four of them do not slow each other down. */
const attemptsOfHost = 64;

/**
 * Runs of first attempts that an account has under way, each for the events of one payout. What finds
 * no place among them is left to the endpoints' own workflows.
 */
const payoutRunsOfAccount = 32;

/**
 * Runs of endpoints' own workflows that an account has under way: one for each endpoint it may
 * have. Deleted ones still have theirs, so more would come of deleting and adding endpoints.
 */
const endpointRunsOfAccount = 16;

/** The same for groups of payouts: more would wait for the same receivers and database. */
const groupRunsOfAccount = 4;

/** Groups that wait for those, and have claimed nothing yet: a batch of 10,000 at once. */
const groupsWaiting = 20;

/**
 * The runs of a worker claim about 2,000 deliveries together, one run a quarter of them at most and
 * 50 at least: a run that is out of time releases what it has not tried, so many runs claim less each.
 */
const claimedTogether = 2_000;
const fullClaims = 4;
const smallestClaim = 50;

/** After it was claimed, an attempt begins within this: so it is over within its lease. */
const beginLimitMs = 4_000;

/** A run of a group begins nothing more after this: the rest goes to the endpoints' own workflows. */
const runLimitMs = 20_000;

/**
 * The workflow of an endpoint works in parallel, so that an attempt that hangs holds up seven others;
 * where it takes batches, one request's worth.
 */
const dueLimits = { claim: 8, batchClaim: 100, parallel: 4 } as const;

/** Runs that a worker has under way or waiting: what is more is left to the endpoints' workflows. */
const runsOfWorker = 1_000;

/** What the runs of a worker have in common. */
type Delivering = DeliveryDeps & {
  readonly accounts: KeyedLimit;
  readonly hosts: KeyedLimit;
  readonly secretsOf: ReturnType<typeof webhookSecretsOpener>;
  /** How many endpoints' deliveries are claimed side by side. */
  readonly claiming: { count: number };
  readonly begin: (steps: readonly Announcement[]) => void;
  /** Whether the worker stops. */
  readonly isClosing: () => boolean;
  readonly wakeEndpoints: ReturnType<typeof createEndpointWakes>;
};

/** Whether a run may begin no further attempt. */
type IsOutOfTime = () => boolean;

export type Deliverer = ReturnType<typeof createDeliverer>;

/** Delivers webhooks: one attempt at a time for each (event, endpoint) pair. */
export function createDeliverer(deps: DeliveryDeps) {
  const { database, log } = deps;
  const delivering = {
    ...deps,
    accounts: createKeyedLimit(attemptsOfAccount),
    hosts: createKeyedLimit(attemptsOfHost),
    begin,
    isClosing: () => isClosing,
    secretsOf: webhookSecretsOpener(database, deps.keyring),
    claiming: { count: 0 },
    wakeEndpoints: createEndpointWakes(deps),
  };
  const payoutRuns = createKeyedLimit(payoutRunsOfAccount, 0);
  const groupRuns = createKeyedLimit(groupRunsOfAccount, groupsWaiting);
  const endpointRuns = createKeyedLimit(endpointRunsOfAccount, 0);
  const underWay = new Set<Promise<void>>();
  let isClosing = false;
  /**
   * First attempts at the events of payouts and of their batches, all of one account, as those of a step
   * are; the endpoints' workflows do the rest.
   */
  async function deliver(subjectIds: readonly string[]): Promise<void> {
    const [first = ''] = subjectIds;
    const accountId = await accountOfEvents(database, first);
    const pending = () => pendingFirstAttempts(database, subjectIds);
    const [runs, limitMs] =
      subjectIds.length === 1 ? [payoutRuns, beginLimitMs] : [groupRuns, runLimitMs];
    // Read when it is its turn: a run that waits keeps nothing but ids.
    const attempt = async () => {
      const isOutOfTime = timerOfRun(limitMs, () => isClosing);
      const pairs = await pending();
      const grouped = subjectIds.length > 1 && attemptGroups(delivering, accountId, isOutOfTime);
      return bothOf(grouped, attemptPending(delivering, pairs, isOutOfTime));
    };
    const run = underWay.size > runsOfWorker ? undefined : runs(accountId, attempt);
    const left = await (run ?? pending());
    // Due at once: they are the business of the endpoints' workflows.
    await releaseClaims(database, left, 0);
    await delivering.wakeEndpoints(left);
  }
  /**
   * Delivers in the background what steps have committed, so that nothing waits for receivers. A
   * process that ends loses nothing: what it has not claimed or recorded is overdue for the sweep.
   */
  function begin(steps: readonly Announcement[]): void {
    const ids = steps.flatMap(({ id, hasPendingDeliveries }) => (hasPendingDeliveries ? [id] : []));
    if (ids.length === 0) return;
    const run = deliver(ids)
      .catch((err: unknown) => log.warn({ err, ids }, 'first deliveries did not finish'))
      .finally(() => underWay.delete(run));
    underWay.add(run);
  }
  return {
    deliver,
    begin,

    /** From now on no further attempt begins; resolves when those under way have ended. */
    close: async (): Promise<void> => {
      isClosing = true;
      await Promise.all(underWay);
    },

    activities: {
      /** Attempts what is due at an endpoint and says when the next attempt is. */
      deliverDue: ({ endpointId }: WebhookDeliveryInput) =>
        withHeartbeat(async () => {
          const { cancellationSignal } = Context.current();
          // Given up by the server, which has begun another: both would attempt the same.
          const isOutOfTime = timerOfRun(beginLimitMs, () => cancellationSignal.aborted);
          const recipient = await recipientOf(database, endpointId);
          const { accountId, batching, status, deletedAt } = recipient;
          if (status !== 'enabled' || deletedAt !== null) {
            return { nextInMs: (await cancelAll(database, endpointId)) ? 0 : null };
          }
          const own = { endpointId, claim: batching ? dueLimits.batchClaim : dueLimits.claim };
          const begin = () => attemptDue(delivering, own, isOutOfTime, dueLimits.parallel);
          const run = endpointRuns(accountId, begin);
          if (run === undefined)
            throw retryLater('The account has reached its limit of delivery runs in progress.');
          await run;
          return { nextInMs: (await nextAttemptInMs(database, endpointId)) ?? null };
        }),
    },
  };
}

/** Waits until both have ended before one that has failed is reported; what the second one answers. */
async function bothOf<T>(first: unknown, second: Promise<T>): Promise<T> {
  await Promise.allSettled([first, second]);
  await first;
  return second;
}

/**
 * Makes first attempts. What failed, or is pending for an endpoint that takes none of them,
 * belongs to its own workflow; what there was no time for is returned.
 */
async function attemptPending(
  deps: Delivering,
  pending: readonly KnownPair[],
  isOutOfTime: IsOutOfTime,
): Promise<readonly KnownPair[]> {
  const health = createHealth();
  // What is more than one claim is split by endpoint: a slow one holds up its own alone.
  const parts =
    pending.length <= smallestClaim
      ? [pending]
      : [...Map.groupBy(pending, ({ endpointId }) => endpointId).values()];
  deps.claiming.count += parts.length;
  const attempted = parts.map((part) => attemptInClaims(deps, part, health, isOutOfTime));
  // All of them end before one that has failed is reported.
  await Promise.allSettled(attempted);
  deps.claiming.count -= parts.length;
  const results = await Promise.all(attempted);
  const rest = untried(pending, results.flat());
  const failed = results.flat().filter(({ status }) => status === 'pending');
  const dead = rest.filter(health.isDead);
  await releaseClaims(deps.database, dead, 0);
  await deps.wakeEndpoints([...failed, ...dead]);
  return rest.filter((pair) => !health.isDead(pair));
}

/** Claims first attempts and makes them, claim after claim; what it had no time for is released. */
async function attemptInClaims(
  deps: Delivering,
  pending: readonly KnownPair[],
  health: Health,
  isOutOfTime: IsOutOfTime,
): Promise<readonly AttemptResult[]> {
  const results: AttemptResult[] = [];
  let from = 0;
  while (from < pending.length && !isOutOfTime()) {
    const group = pending.slice(from, from + claimSize(deps));
    from += group.length;
    const pairs = group.filter((pair) => !health.isDead(pair));
    if (pairs.length === 0) continue;
    const isLate = timerOfRun(beginLimitMs, isOutOfTime);
    const due = await claimFirstAttempts(deps.database, pairs);
    const ended = await attemptAll(deps, due, health, isLate);
    await releaseClaims(deps.database, untried(due, ended), firstAttemptMs);
    results.push(...ended);
  }
  return results;
}

const claimSize = ({ claiming }: Delivering) =>
  Math.max(Math.floor(claimedTogether / Math.max(claiming.count, fullClaims)), smallestClaim);

/**
 * Makes the first attempts of an account that stand in groups, those of each endpoint by themselves.
 * What it leaves is due in some seconds: the sweep hands it to the endpoints' workflows.
 */
async function attemptGroups(
  deps: Delivering,
  accountId: string,
  isOutOfTime: IsOutOfTime,
): Promise<void> {
  const health = createHealth();
  const attemptAt = async (endpointId: string) => {
    let isLeft = false;
    while (!isOutOfTime() && !health.isDead({ endpointId })) {
      const isLate = timerOfRun(beginLimitMs, isOutOfTime);
      const due = await claimGroups(deps.database, endpointId, claimSize(deps));
      if (due.length === 0) break;
      const ended = await attemptAll(deps, due, health, isLate);
      const untried = await endGroups(deps.database, due);
      isLeft ||= untried > 0 || ended.some(({ status }) => status === 'pending');
    }
    if (isLeft) await deps.wakeEndpoints([{ endpointId }]);
  };
  const endpointIds = await endpointsOfGroups(deps.database, accountId);
  deps.claiming.count += endpointIds.length;
  const attempted = endpointIds.map(attemptAt);
  await Promise.allSettled(attempted);
  deps.claiming.count -= endpointIds.length;
  if (deps.isClosing()) await releaseGroups(deps.database, accountId);
  await Promise.all(attempted);
}

/** Attempts what is due at an endpoint, in parallel where there is enough for that. */
async function attemptDue(
  deps: Delivering,
  own: { readonly endpointId: string; readonly claim: number },
  isOutOfTime: IsOutOfTime,
  parallel: number,
): Promise<void> {
  const due = await claimDueDeliveries(deps.database, own.endpointId, own.claim);
  const isFull = due.length === own.claim;
  const attemptClaimed = async () => {
    const results = await attemptAll(deps, due, createHealth(), isOutOfTime);
    // An attempt that was not made must not count as one of the retry schedule.
    await releaseClaims(deps.database, untried(due, results), 0);
    if (isFull && results.length === due.length && !isOutOfTime()) {
      await attemptDue(deps, own, isOutOfTime, 1);
    }
  };
  const hasOthers = isFull && parallel > 1;
  const others = hasOthers ? attemptDue(deps, own, isOutOfTime, parallel - 1) : undefined;
  await Promise.all([attemptClaimed(), others]);
}

/** Says when a run must end: after its limit, or sooner. */
function timerOfRun(limitMs: number, isEnded: IsOutOfTime): IsOutOfTime {
  const endsAtMs = performance.now() + limitMs;
  return () => isEnded() || performance.now() > endsAtMs;
}

/** What was not attempted, for want of time or because its endpoint is dead. */
function untried<T extends Pair>(pairs: readonly T[], results: readonly Pair[]): readonly T[] {
  const tried = new Set(results.map(({ eventId, endpointId }) => `${eventId} ${endpointId}`));
  return pairs.filter(({ eventId, endpointId }) => !tried.has(`${eventId} ${endpointId}`));
}

/** What its owner reads of a webhook that we could not make: the rest is for our log. */
const notMade = 'internal error: nothing was sent';

/**
 * An endpoint that has failed this often in a run, and has taken nothing, is left alone by it. Requests
 * count, not events: otherwise a single 503 to a batch would end the run.
 */
const deadAfterFailures = 16;

type Health = ReturnType<typeof createHealth>;

/** How the endpoints of a run do: one that has taken something is alive for all of it. */
function createHealth() {
  const alive = new Set<string>();
  const failures = new Map<string, number>();
  return {
    note: ({ endpointId, status, httpStatus }: AttemptResult): void => {
      const failed = httpStatus === gone ? deadAfterFailures : 1;
      if (status === 'delivered') alive.add(endpointId);
      else failures.set(endpointId, (failures.get(endpointId) ?? 0) + failed);
    },
    isDead: ({ endpointId }: Pick<Pair, 'endpointId'>): boolean =>
      !alive.has(endpointId) && (failures.get(endpointId) ?? 0) >= deadAfterFailures,
  };
}

/**
 * Makes the attempts, each as soon as there is room for it at its host, and writes what came of them
 * as it goes: a crash repeats the attempts of the last moments and no others.
 */
async function attemptAll(
  deps: Delivering,
  due: readonly DueDelivery[],
  health: Health,
  isOutOfTime: IsOutOfTime,
): Promise<readonly AttemptResult[]> {
  const recorder = createAttemptRecorder(deps);
  const turnOf = <T>({ accountId, url }: DueDelivery, work: () => Promise<T>) => {
    const host = URL.parse(url)?.host ?? '';
    return deps.accounts(`${accountId} ${host}`, () => deps.hosts(host, work));
  };
  const results = await Promise.all(
    webhookMessages(due).map((message) =>
      turnOf(message.to, async () => {
        if (recorder.isBroken() || isOutOfTime() || health.isDead(message.to)) return [];
        const ended = await attempt(deps, message).catch((error: unknown) => {
          if (isOutage(error)) return [];
          deps.log.error({ err: error, id: message.id }, 'a webhook could not be made');
          // It must not hold up the others, nor stay for ever.
          return message.deliveries.map((one) => failedAttempt({ ...unsent(one), error: notMade }));
        });
        ended.slice(0, 1).forEach(health.note);
        await Promise.all(ended.map(recorder.add));
        return ended;
      }),
    ),
  );
  await recorder.end();
  return results.flat();
}

/** One request; what came of it came of each delivery that it has. */
async function attempt(
  { sender, secretsOf, log }: Delivering,
  { id, to, deliveries, body }: WebhookMessage,
): Promise<readonly AttemptResult[]> {
  const at = new Date();
  const made = deliveries.map((one) => unsent(one, at));
  const { endpointId, secretNumber, isOverlap } = to;
  const secrets = await secretsOf(endpointId, secretNumber, isOverlap);
  const startedAtMs = performance.now();
  const outcome = await sender.send({
    account: to.accountId,
    url: to.url,
    id,
    timestampSeconds: Math.floor(Date.now() / 1000),
    body: body(),
    secrets,
    signature: to.signature,
  });
  const latencyMs = Math.round(performance.now() - startedAtMs);
  if (outcome.kind === 'blocked') {
    log.warn({ id, endpointId, detail: outcome.detail }, 'a webhook was not sent');
  }
  countAttempts(outcome, deliveries);
  const facts = factsOf(outcome);
  const ended = made.map((one) => ({ ...one, latencyMs, ...facts }));
  if (outcome.kind === 'delivered') return ended.map((one) => ({ ...one, status: 'delivered' }));
  if (outcome.kind === 'gone') return ended.map((one) => ({ ...one, status: 'exhausted' }));
  const retryAfterMs = outcome.kind === 'refused' ? outcome.retryAfterMs : undefined;
  // The same jitter for the whole request, so that its events stay together.
  const chance = Math.random();
  return ended.map((one) => failedAttempt(one, chance, retryAfterMs));
}

function countAttempts({ kind }: SendOutcome, deliveries: readonly DueDelivery[]): void {
  count('webhook_attempts_total', { outcome: kind }, deliveries.length);
  if (kind !== 'delivered') return;
  for (const { createdAt } of deliveries) {
    const lagMs = Math.max(Date.now() - createdAt.getTime(), 0);
    observe('webhook_delivery_lag_seconds', {}, lagMs / 1000);
  }
}

/** An attempt of which nothing is known yet; those of one request have their time in common. */
function unsent(delivery: DueDelivery, at = new Date()) {
  const { eventId, endpointId, groupId, nextAttemptAt, attempts, url, isFailing } = delivery;
  const nothing = { latencyMs: null, httpStatus: null, error: null, answer: null, retryInMs: 0 };
  return { eventId, endpointId, groupId, nextAttemptAt, attempts, url, isFailing, at, ...nothing };
}

type Ended = Omit<AttemptResult, 'status'>;

/** A failed attempt: the retry schedule continues from it, or it was the last one. */
function failedAttempt(ended: Ended, chance = Math.random(), retryAfterMs?: number): AttemptResult {
  const retryInMs = backoffAfter(ended.attempts, chance, retryAfterMs);
  const status = retryInMs === undefined ? 'exhausted' : 'pending';
  return { ...ended, status, retryInMs: retryInMs ?? 0 };
}
