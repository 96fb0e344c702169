import { Context } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import pLimit from 'p-limit';
import { eventObject } from '../contract/objects.js';
import { defaultApiVersion, isApiVersion, render } from '../contract/versions/index.js';
import { itemsOf } from '../db/chunks.js';
import type { Database } from '../db/client.js';
import {
  type AttemptResult,
  type DueDelivery,
  disableEndpoint,
  giveBack,
  nextAttemptInMs,
  owedFirstAttempts,
  type Pair,
  recordAttempts,
  takeDueDeliveries,
  takeFirstAttempts,
} from '../db/deliveries.js';
import { type Chunk, groupsOf } from '../domain/batch.js';
import { payoutStatuses } from '../domain/payout.js';
import { wakeEndpoint } from '../temporal/wakePayout.js';
import { pauseAfter } from '../webhooks/ladder.js';
import type { Sender, SendOutcome } from '../webhooks/sender.js';
import { beating, isRepeated } from './failure.js';

export type DeliveryDeps = {
  readonly database: Database;
  readonly sender: Sender;
  readonly temporal: Client;
};

/** Attempts of one activity at once: as many as the sender has connections for a receiver. */
const inFlight = 16;

/** What one run of an endpoint's ladder takes. */
const ladderBatch = 32;

/** Then no more of them are begun: with the longest attempt (15 s) a run ends within its 25 s. */
const ladderLimitMs = 5_000;

/** Taken at a time: a chunk's events for one endpoint, in one statement. */
const portion = 500;

/**
 * Then a run ends, and what it has taken and not tried is given back: with the longest attempt
 * (15 s) it ends within its lease.
 */
const runLimitMs = 20_000;

/** Results are written by so many: what a crash may repeat, and no more. */
const writtenTogether = 50;

/** The activities that tell integrators. One attempt for each (event, endpoint) pair. */
export function deliveryActivities(deps: DeliveryDeps) {
  const { database, sender } = deps;
  return {
    /** The first attempt of whatever these payouts' events owe; failures go to the ladder. */
    deliverEvents: async ({ payoutIds }: { readonly payoutIds: readonly string[] }) => {
      await deliverAll(deps, payoutIds);
    },

    /** The first attempts of what the events of a chunk owe. True when something is left. */
    deliverChunk: (chunk: Chunk): Promise<boolean> =>
      beating(async () => deliverAll(deps, await itemsOf(database, chunk, payoutStatuses, null))),

    /** Attempts what is due at an endpoint and says when the next attempt is. */
    deliverDue: async ({ endpointId }: { readonly endpointId: string }) => {
      const due = await takeDueDeliveries(database, endpointId, ladderBatch);
      const isTimeUp = timerOfRun(ladderLimitMs);
      const results = await attemptAll(database, sender, due, new Map(), isTimeUp);
      // An attempt that was not made must not count as a rung of the ladder.
      await giveBack(database, untried(due, results));
      return { nextInMs: (await nextAttemptInMs(database, endpointId)) ?? null };
    },
  };
}

/**
 * First attempts, a portion at a time. An endpoint that takes none of its first ones is left to
 * its ladder. True when something is left of an endpoint that answers.
 */
async function deliverAll(deps: DeliveryDeps, payoutIds: readonly string[]): Promise<boolean> {
  const { database, sender, temporal } = deps;
  const isTimeUp = timerOfRun(runLimitMs);
  // A worker that was killed has left attempts behind of which nobody knows what became.
  const isSecond = isRepeated();
  const failures: Failures = new Map();
  const owed = await owedFirstAttempts(database, payoutIds, isSecond);
  for (const group of groupsOf(owed, portion)) {
    const pairs = group.filter((pair) => isAlive(failures, pair));
    if (pairs.length === 0) continue;
    const due = await takeFirstAttempts(database, pairs, isSecond);
    const results = await attemptAll(database, sender, due, failures, isTimeUp);
    const left = untried(due, results);
    await giveBack(database, left);
    await handToLadders(temporal, results);
    // Only for want of time.
    if (left.some((pair) => isAlive(failures, pair))) return true;
  }
  return false;
}

/**
 * Tells a run when to end: after its limit, and also when its worker is to stop or the server
 * has given it up and begun another, which would attempt the same beside it.
 */
function timerOfRun(limitMs: number): () => boolean {
  const { cancellationSignal } = Context.current();
  const endsAtMs = performance.now() + limitMs;
  return () => cancellationSignal.aborted || performance.now() > endsAtMs;
}

/** What was taken and then not attempted, for want of time or because its endpoint is dead. */
function untried(
  due: readonly DueDelivery[],
  results: readonly AttemptResult[],
): readonly DueDelivery[] {
  const tried = new Set(results.map(({ eventId, endpointId }) => `${eventId} ${endpointId}`));
  return due.filter(({ eventId, endpointId }) => !tried.has(`${eventId} ${endpointId}`));
}

/** What was tried in vain belongs to the workflow of its endpoint. */
async function handToLadders(temporal: Client, results: readonly AttemptResult[]): Promise<void> {
  const failed = results.filter((result) => result.status === 'pending');
  const endpoints = new Set(failed.map((result) => result.endpointId));
  for (const endpointId of endpoints) await wakeEndpoint(temporal, endpointId);
}

/** An endpoint that has failed so often in a run without a success is left alone by it. */
const deadAfterFailures = 16;

/** Failures of each endpoint that has taken nothing yet; a success ends the count for good. */
type Failures = Map<string, number>;

function isAlive(failures: Failures, { endpointId }: Pair): boolean {
  return (failures.get(endpointId) ?? 0) < deadAfterFailures;
}

/**
 * Makes the attempts, until the time is over, and writes what came of them as it goes: a crash
 * repeats the attempts of the last moments and no others.
 */
async function attemptAll(
  database: Database,
  sender: Sender,
  due: readonly DueDelivery[],
  failures: Failures,
  isTimeUp: () => boolean,
): Promise<readonly AttemptResult[]> {
  const limit = pLimit(inFlight);
  const all: AttemptResult[] = [];
  let unwritten: AttemptResult[] = [];
  const write = async () => {
    const results = unwritten;
    unwritten = [];
    await recordAttempts(database, results);
  };
  const note = ({ endpointId, status }: AttemptResult) => {
    const count = status === 'delivered' ? Number.NEGATIVE_INFINITY : 1;
    failures.set(endpointId, (failures.get(endpointId) ?? 0) + count);
  };
  const attempts = due.map((delivery) =>
    limit(async () => {
      if (!isAlive(failures, delivery) || isTimeUp()) return;
      const result = await attempt(database, sender, delivery).catch((error: unknown) =>
        // A delivery that cannot even be made must not hold up the others, nor stay for ever.
        failedAttempt(delivery, null, error instanceof Error ? error.message : String(error)),
      );
      note(result);
      all.push(result);
      unwritten.push(result);
      if (unwritten.length >= writtenTogether) await write();
    }),
  );
  try {
    await Promise.all(attempts);
  } finally {
    // What cannot be written is not attempted: the next run would tell all of it again.
    limit.clearQueue();
  }
  await write();
  return all;
}

async function attempt(
  database: Database,
  sender: Sender,
  delivery: DueDelivery,
): Promise<AttemptResult> {
  const outcome = await sender.send({
    url: delivery.url,
    id: delivery.eventId,
    timestampSeconds: Math.floor(Date.now() / 1000),
    body: webhookBody(delivery),
    secrets: [delivery.secret],
  });
  const { eventId, endpointId } = delivery;
  const httpStatus = 'status' in outcome ? outcome.status : null;
  const error = errorOf(outcome);
  const ended = { eventId, endpointId, httpStatus, error, retryInMs: 0 };
  if (outcome.kind === 'delivered') return { ...ended, status: 'delivered' };
  if (outcome.kind === 'gone') {
    await disableEndpoint(database, endpointId, 'The receiver answered 410 Gone.');
    return { ...ended, status: 'exhausted' };
  }
  const retryAfterMs = outcome.kind === 'refused' ? outcome.retryAfterMs : undefined;
  return failedAttempt(delivery, httpStatus, error, retryAfterMs);
}

/** An attempt that the ladder goes on from, or that was its last. */
function failedAttempt(
  { eventId, endpointId, attempts }: DueDelivery,
  httpStatus: number | null,
  error: string | null,
  retryAfterMs?: number,
): AttemptResult {
  const retryInMs = pauseAfter(attempts, Math.random(), retryAfterMs);
  const status = retryInMs === undefined ? 'exhausted' : 'pending';
  return { eventId, endpointId, httpStatus, error, status, retryInMs: retryInMs ?? 0 };
}

/** The bytes of an event for an endpoint: the same on every attempt. */
function webhookBody(delivery: DueDelivery): string {
  const version = isApiVersion(delivery.apiVersion) ? delivery.apiVersion : defaultApiVersion;
  const event = render(eventObject({ ...delivery, id: delivery.eventId }), version);
  const { id, type, timestamp, sequence, data } = event;
  return JSON.stringify({ id, type, timestamp, api_version: version, sequence, data });
}

function errorOf(outcome: SendOutcome): string | null {
  switch (outcome.kind) {
    case 'delivered':
      return null;
    case 'gone':
    case 'refused':
      return `HTTP ${outcome.status}`;
    case 'unreachable':
    case 'blocked':
      return outcome.reason;
  }
}
