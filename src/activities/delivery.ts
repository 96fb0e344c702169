import { Context } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import pLimit from 'p-limit';
import { eventObject } from '../contract/objects.js';
import { defaultApiVersion, isApiVersion, render } from '../contract/versions/index.js';
import { itemsOf } from '../db/batches.js';
import type { Database } from '../db/client.js';
import {
  type AttemptResult,
  type DueDelivery,
  disableEndpoint,
  nextAttemptInMs,
  owedFirstAttempts,
  recordAttempts,
  takeDueDeliveries,
  takeFirstAttempts,
} from '../db/deliveries.js';
import type { Chunk } from '../domain/batch.js';
import { payoutStatuses } from '../domain/payout.js';
import { wakeEndpoint } from '../temporal/wakePayout.js';
import { pauseAfter } from '../webhooks/ladder.js';
import type { Sender, SendOutcome } from '../webhooks/sender.js';
import { beating } from './failure.js';

export type DeliveryDeps = {
  readonly database: Database;
  readonly sender: Sender;
  readonly temporal: Client;
};

/** Attempts of one activity at once: as many as the sender has connections for a receiver. */
const inFlight = 16;

/** What one run of an endpoint's ladder takes: at 15 s an attempt it ends within its limit. */
const ladderBatch = 32;

/** Taken at a time from a chunk's events: in the worst case 30 s of attempts, below their lease. */
const portion = 32;

/** Then a run ends and the next begins: one that a deploy ends has little to lose. */
const runLimitMs = 20_000;

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
      await attemptAll(
        database,
        sender,
        await takeDueDeliveries(database, endpointId, ladderBatch),
      );
      return { nextInMs: (await nextAttemptInMs(database, endpointId)) ?? null };
    },
  };
}

/**
 * First attempts, a portion at a time. An endpoint that takes nothing of a portion is left to
 * its ladder. True when something is left.
 */
async function deliverAll(deps: DeliveryDeps, payoutIds: readonly string[]): Promise<boolean> {
  const startedMs = performance.now();
  // A worker that was killed has left attempts behind of which nobody knows what became.
  const isRepeated = Context.current().info.attempt > 1;
  const owed = await owedFirstAttempts(deps.database, payoutIds, isRepeated);
  const dead = new Set<string>();
  for (let start = 0; start < owed.length; start += portion) {
    if (performance.now() - startedMs > runLimitMs) return true;
    const pairs = owed.slice(start, start + portion).filter((pair) => !dead.has(pair.endpointId));
    const due = await takeFirstAttempts(deps.database, pairs, isRepeated);
    const results = await attemptAll(deps.database, deps.sender, due);
    await handToLadders(deps.temporal, results);
    for (const endpointId of deadEndpoints(results)) dead.add(endpointId);
  }
  return false;
}

/** What was tried in vain belongs to the workflow of its endpoint. */
async function handToLadders(temporal: Client, results: readonly AttemptResult[]): Promise<void> {
  const failed = results.filter((result) => result.status === 'pending');
  const endpoints = new Set(failed.map((result) => result.endpointId));
  for (const endpointId of endpoints) await wakeEndpoint(temporal, endpointId);
}

/** Endpoints that took nothing: they are spared the rest, and their ladder asks one by one. */
function deadEndpoints(results: readonly AttemptResult[]): readonly string[] {
  const alive = new Set(
    results.filter((result) => result.status === 'delivered').map((result) => result.endpointId),
  );
  const all = new Set(results.map((result) => result.endpointId));
  return [...all].filter((endpointId) => !alive.has(endpointId));
}

/**
 * Makes the attempts, and writes what came of them as it goes: a crash repeats the attempts in
 * flight and no others. While one write is under way the next results gather.
 */
async function attemptAll(
  database: Database,
  sender: Sender,
  due: readonly DueDelivery[],
): Promise<readonly AttemptResult[]> {
  const limit = pLimit(inFlight);
  const all: AttemptResult[] = [];
  let unwritten: AttemptResult[] = [];
  let writing = Promise.resolve();
  const write = async () => {
    const results = unwritten;
    unwritten = [];
    await recordAttempts(database, results);
  };
  const attempts = due.map((delivery) =>
    limit(async () => {
      const result = await attempt(database, sender, delivery).catch((error: unknown) =>
        // A delivery that cannot even be made must not hold up the others, nor stay for ever.
        failedAttempt(delivery, null, error instanceof Error ? error.message : String(error)),
      );
      all.push(result);
      unwritten.push(result);
      if (unwritten.length > 1) return;
      writing = writing.then(write);
      // It is awaited below; until then a failure must not count as one that nobody handles.
      writing.catch(() => undefined);
    }),
  );
  await Promise.all(attempts);
  await writing;
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
