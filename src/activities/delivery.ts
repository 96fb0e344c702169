import { Context } from '@temporalio/activity';
import { exactlyOne, isOutage } from '../db/client.js';
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
import { cancelAll, findRecipient } from '../db/webhookEndpoints.js';
import { webhookSecretsOpener } from '../db/webhookSecrets.js';
import { createKeyedLimit, type KeyedLimit } from '../keyedLimit.js';
import { count, observe } from '../metrics.js';
import { backoffAfter } from '../webhooks/retrySchedule.js';
import { factsOf, type SendOutcome } from '../webhooks/sender.js';
import type { WebhookDeliveryInput } from '../workflows/messages.js';
import { createAttemptRecorder, gone } from './attemptRecorder.js';
import type { ActivityDeps, Announcement } from './deps.js';
import { createEndpointWakes } from './endpointWakes.js';
import { retryLater, withHeartbeat } from './failure.js';
import { type WebhookMessage, webhookMessages } from './webhookMessages.js';

type DeliveryDeps = Pick<ActivityDeps, 'database' | 'temporal' | 'log' | 'keyring' | 'sender'>;

/**
 * Maximum concurrent attempts of one account at one host, across all its endpoints there. A batch goes
 * out in seconds without flooding its receiver. Equals the sender's connections per account and host.
 */
const attemptsOfAccount = 16;

/** Maximum concurrent attempts of all accounts at one host: four accounts do not slow each other down. */
const attemptsOfHost = 64;

/**
 * Maximum concurrent runs of first attempts per account, each for the events of one payout. Beyond it,
 * deliveries are left to the endpoints' own workflows.
 */
const payoutRunsOfAccount = 32;

/**
 * Maximum concurrent runs of endpoints' own workflows per account: one for each endpoint it may have.
 * Deleted endpoints keep their workflows, so deleting and adding endpoints could exceed this.
 */
const endpointRunsOfAccount = 16;

/** Maximum concurrent runs for groups of payouts: more would wait for the same receivers and database. */
const groupRunsOfAccount = 4;

/** Maximum groups waiting for such a run, with nothing claimed yet: room for a batch of 10,000. */
const groupsWaiting = 20;

/**
 * All runs of a worker together claim about 2,000 deliveries, a single run at most a quarter of that and
 * at least 50. A run that is out of time releases untried claims, so the more runs, the less each claims.
 */
const claimedTogether = 2_000;
const fullClaims = 4;
const smallestClaim = 50;

/** Maximum time from the claim to the start of an attempt, so that the attempt ends within its lease. */
const beginLimitMs = 4_000;

/** Time after which a group's run starts no attempts and leaves the rest to the endpoints' workflows. */
const runLimitMs = 20_000;

/**
 * Limits of an endpoint's workflow. Its claims run in parallel, so that a hanging attempt holds up only
 * the seven others of its claim. For an endpoint that accepts batches, a claim fills one request.
 */
const dueLimits = { claim: 8, batchClaim: 100, parallel: 4 } as const;

/** Maximum runs of a worker, in progress or waiting. Beyond it, endpoints' workflows take over. */
const runsOfWorker = 1_000;

/** State and dependencies shared by all runs of a worker. */
type Delivering = DeliveryDeps & {
  readonly accounts: KeyedLimit;
  readonly hosts: KeyedLimit;
  readonly secretsOf: ReturnType<typeof webhookSecretsOpener>;
  /** Number of endpoints whose deliveries are being claimed concurrently. */
  readonly claiming: { count: number };
  readonly begin: (steps: readonly Announcement[]) => void;
  /** Whether the worker is shutting down. */
  readonly isClosing: () => boolean;
  readonly wakeEndpoints: ReturnType<typeof createEndpointWakes>;
};

/** Returns whether a run must not start another attempt. */
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
   * Makes first attempts for the events of payouts and their batches, which belong to one account because
   * they come from one step. The endpoints' workflows make all other attempts.
   */
  async function deliver(subjectIds: readonly string[]): Promise<void> {
    const [first = ''] = subjectIds;
    const accountId = await accountOfEvents(database, first);
    const pending = () => pendingFirstAttempts(database, subjectIds);
    const [runs, limitMs] =
      subjectIds.length === 1 ? [payoutRuns, beginLimitMs] : [groupRuns, runLimitMs];
    // The pairs are read when the run's turn comes: a waiting run holds only ids.
    const attempt = async () => {
      const isOutOfTime = timerOfRun(limitMs, () => isClosing);
      const pairs = await pending();
      const grouped = subjectIds.length > 1 && attemptGroups(delivering, accountId, isOutOfTime);
      return bothOf(grouped, attemptPending(delivering, pairs, isOutOfTime));
    };
    const run = underWay.size > runsOfWorker ? undefined : runs(accountId, attempt);
    const left = await (run ?? pending());
    // Made due at once, for the endpoints' workflows.
    await releaseClaims(database, left, 0);
    await delivering.wakeEndpoints(left);
  }
  /**
   * Delivers the committed events of steps in the background, so that nothing waits for receivers. A
   * process that ends loses nothing: unclaimed and unrecorded deliveries become overdue for the sweep.
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

    /** Starts no more attempts, and resolves when those in progress have ended. */
    close: async (): Promise<void> => {
      isClosing = true;
      await Promise.all(underWay);
    },

    activities: {
      /** Attempts the deliveries due at an endpoint and returns when the next attempt is due. */
      deliverDue: ({ endpointId }: WebhookDeliveryInput) =>
        withHeartbeat(async () => {
          const { cancellationSignal } = Context.current();
          // A canceled activity stops: the server has started another one, which makes the same attempts.
          const isOutOfTime = timerOfRun(beginLimitMs, () => cancellationSignal.aborted);
          const recipient = exactlyOne(await findRecipient(database, endpointId));
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

/** Waits until both have ended before it reports a failure. Returns the result of the second. */
async function bothOf<T>(first: unknown, second: Promise<T>): Promise<T> {
  await Promise.allSettled([first, second]);
  await first;
  return second;
}

/**
 * Makes first attempts. Failed ones, and those for an endpoint found dead, are left to the endpoint's
 * own workflow. Returns the pairs for which there was no time.
 */
async function attemptPending(
  deps: Delivering,
  pending: readonly KnownPair[],
  isOutOfTime: IsOutOfTime,
): Promise<readonly KnownPair[]> {
  const health = createHealth();
  // More than one claim is split by endpoint, so that a slow endpoint holds up only itself.
  const parts =
    pending.length <= smallestClaim
      ? [pending]
      : [...Map.groupBy(pending, ({ endpointId }) => endpointId).values()];
  deps.claiming.count += parts.length;
  const attempted = parts.map((part) => attemptInClaims(deps, part, health, isOutOfTime));
  // All parts end before a failure is reported.
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

/** Claims first attempts and makes them, claim after claim. Releases those it had no time for. */
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
 * Makes an account's first attempts that are stored as groups, separately for each endpoint. The rest is
 * due in some seconds, when the sweep hands it to the endpoints' workflows.
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

/** Attempts the deliveries due at an endpoint, in parallel if there are enough of them. */
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
    // An attempt that was not made must not count towards the retry schedule.
    await releaseClaims(deps.database, untried(due, results), 0);
    if (isFull && results.length === due.length && !isOutOfTime()) {
      await attemptDue(deps, own, isOutOfTime, 1);
    }
  };
  const hasOthers = isFull && parallel > 1;
  const others = hasOthers ? attemptDue(deps, own, isOutOfTime, parallel - 1) : undefined;
  await Promise.all([attemptClaimed(), others]);
}

/** Returns a check of whether a run must end: after its limit, or as soon as `isEnded` holds. */
function timerOfRun(limitMs: number, isEnded: IsOutOfTime): IsOutOfTime {
  const endsAtMs = performance.now() + limitMs;
  return () => isEnded() || performance.now() > endsAtMs;
}

/** Returns the pairs not attempted, for lack of time or because their endpoint is dead. */
function untried<T extends Pair>(pairs: readonly T[], results: readonly Pair[]): readonly T[] {
  const tried = new Set(results.map(({ eventId, endpointId }) => `${eventId} ${endpointId}`));
  return pairs.filter(({ eventId, endpointId }) => !tried.has(`${eventId} ${endpointId}`));
}

/** Error shown to an endpoint's owner if we could not build a webhook. The cause is only in our log. */
const notMade = 'internal error: nothing was sent';

/**
 * Number of failed requests after which a run skips an endpoint that has accepted nothing. Requests are
 * counted, not events: otherwise a single 503 to a batch would end the run.
 */
const deadAfterFailures = 16;

type Health = ReturnType<typeof createHealth>;

/** Tracks the endpoints of a run. One that has accepted a webhook counts as alive for the whole run. */
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
 * Makes the attempts, each as soon as its host has capacity, and writes the results as it goes: a crash
 * repeats only the attempts of the last moments.
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
          deps.log.error(
            { err: error, id: message.id },
            'a webhook attempt failed before anything was sent',
          );
          // The failed webhook must not hold up the others, nor stay pending for ever.
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

/** Sends one request. Its outcome applies to every delivery in it. */
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

/** An attempt without a result yet. The attempts of one request share their time. */
function unsent(delivery: DueDelivery, at = new Date()) {
  const { eventId, endpointId, groupId, nextAttemptAt, attempts, url } = delivery;
  const nothing = { latencyMs: null, httpStatus: null, error: null, answer: null, retryInMs: 0 };
  return { eventId, endpointId, groupId, nextAttemptAt, attempts, url, at, ...nothing };
}

type Ended = Omit<AttemptResult, 'status'>;

/** A failed attempt: either the retry schedule has another one, or this was the last. */
function failedAttempt(ended: Ended, chance = Math.random(), retryAfterMs?: number): AttemptResult {
  const retryInMs = backoffAfter(ended.attempts, chance, retryAfterMs);
  const status = retryInMs === undefined ? 'exhausted' : 'pending';
  return { ...ended, status, retryInMs: retryInMs ?? 0 };
}
