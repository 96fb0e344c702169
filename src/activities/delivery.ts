import type { Client } from '@temporalio/client';
import pLimit from 'p-limit';
import { eventObject } from '../contract/objects.js';
import { defaultApiVersion, isApiVersion, render } from '../contract/versions/index.js';
import type { Database } from '../db/client.js';
import {
  type AttemptResult,
  type DueDelivery,
  disableEndpoint,
  nextAttemptInMs,
  recordAttempts,
  takeDueDeliveries,
  takeFirstAttempts,
} from '../db/deliveries.js';
import { wakeEndpoint } from '../temporal/wakePayout.js';
import { pauseAfter } from '../webhooks/ladder.js';
import type { Sender, SendOutcome } from '../webhooks/sender.js';

export type DeliveryDeps = {
  readonly database: Database;
  readonly sender: Sender;
  readonly temporal: Client;
};

/** Attempts of one activity at once: enough for a batch, few enough for one receiver. */
const inFlight = 32;

/** What one run of an endpoint's ladder takes: at 15 s an attempt it ends within its limit. */
const ladderBatch = 32;

/** The activities that tell integrators. One attempt for each (event, endpoint) pair. */
export function deliveryActivities({ database, sender, temporal }: DeliveryDeps) {
  return {
    /** The first attempt of whatever these payouts' events owe; failures go to the ladder. */
    deliverEvents: async ({ payoutIds }: { readonly payoutIds: readonly string[] }) => {
      const due = await takeFirstAttempts(database, payoutIds);
      const results = await attemptAll(database, sender, due);
      const failed = new Set(
        results.filter((result) => result.status === 'pending').map((result) => result.endpointId),
      );
      for (const endpointId of failed) await wakeEndpoint(temporal, endpointId);
    },

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

async function attemptAll(
  database: Database,
  sender: Sender,
  due: readonly DueDelivery[],
): Promise<readonly AttemptResult[]> {
  const limit = pLimit(inFlight);
  return Promise.all(
    due.map((delivery) =>
      limit(async () => {
        const result = await attempt(database, sender, delivery).catch((error: unknown) =>
          // A delivery that cannot even be made must not hold up the others, nor stay for ever.
          failedAttempt(delivery, null, error instanceof Error ? error.message : String(error)),
        );
        // Written as it goes: a crash repeats the attempts in flight and no others.
        await recordAttempts(database, [result]);
        return result;
      }),
    ),
  );
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
