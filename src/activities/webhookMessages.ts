import { createHash } from 'node:crypto';
import { eventObject } from '../contract/objects.js';
import { render, versionNamed } from '../contract/versions/index.js';
import type { DueDelivery } from '../db/deliveries.js';
import { eventBatch } from '../domain/event.js';

/** The content of one request: an event, or a batch of events. */
export type WebhookMessage = {
  /** The `webhook-id`: the event's id, or one derived from the ids of a batch's events. */
  readonly id: string;
  /** The first of the deliveries. All of them agree in where and how they are sent. */
  readonly to: DueDelivery;
  readonly deliveries: readonly DueDelivery[];
  /** Returns the same bytes on every attempt. Throws if the event cannot be rendered. */
  readonly body: () => string;
};

type Rendered = { readonly delivery: DueDelivery; readonly text: string };
type Batch = [Rendered, ...Rendered[]];

/** Maximum events in a batch: as in the longest page of a list, which a receiver catching up also reads. */
const batchEvents = 100;

/** Maximum bytes of a batch's events: a quarter of the 1 MiB common servers accept, less the envelope. */
const batchBytes = 256 * 1024 - 200;

/**
 * Returns the requests for the deliveries of one claim, each event in exactly one of them. A claim is
 * one statement, which sees each endpoint in one state, so all of an endpoint's deliveries have the same
 * URL, version and secrets.
 */
export function webhookMessages(due: readonly DueDelivery[]): readonly WebhookMessage[] {
  const batched = due.filter(({ batching }) => batching).flatMap(rendered);
  const isBatched = new Set(batched.map(({ delivery }) => delivery));
  const together = ({ delivery: { endpointId, attempts } }: Rendered) =>
    `${endpointId} ${attempts}`;
  const byEndpoint = Map.groupBy(batched, together);
  return [
    ...due.filter((delivery) => !isBatched.has(delivery)).map(single),
    ...[...byEndpoint.values()].flatMap(batchesOf).map(batch),
  ];
}

/** Renders an event. Returns nothing if that fails: the event is then sent alone, and fails alone. */
function rendered(delivery: DueDelivery): readonly Rendered[] {
  try {
    return [{ delivery, text: webhookBody(delivery) }];
  } catch {
    return [];
  }
}

function single(to: DueDelivery): WebhookMessage {
  return { id: to.eventId, to, deliveries: [to], body: () => webhookBody(to) };
}

/**
 * Splits events with the same number of attempts, in order, by number and size. Each attempt halves the
 * number per batch, so an event that a receiver refuses, or finds too large, fails alone in the end.
 */
function batchesOf(events: readonly Rendered[]): readonly Batch[] {
  const attempts = events[0]?.delivery.attempts ?? 1;
  const most = Math.max(1, Math.floor(batchEvents / 2 ** (attempts - 1)));
  const batches: Batch[] = [];
  let bytes = 0;
  for (const one of events) {
    const added = Buffer.byteLength(one.text) + 1;
    bytes += added;
    const batch = batches.at(-1);
    if (batch !== undefined && batch.length < most && bytes <= batchBytes) {
      batch.push(one);
    } else {
      batches.push([one]);
      bytes = added;
    }
  }
  return batches;
}

/** The id and bytes of a batch depend only on its events, so a retried batch is identical. */
function batch(events: Batch): WebhookMessage {
  const [{ delivery: to }] = events;
  const ids = events.map(({ delivery }) => delivery.eventId).join();
  const id = `evb_${createHash('sha256').update(ids).digest('hex').slice(0, 32)}`;
  const head = {
    id,
    type: eventBatch,
    timestamp: to.createdAt,
    api_version: versionNamed(to.apiVersion),
  };
  const texts = events.map(({ text }) => text).join();
  const body = `${JSON.stringify(head).slice(0, -1)},"data":[${texts}]}`;
  return { id, to, deliveries: events.map(({ delivery }) => delivery), body: () => body };
}

/** Returns the body of an event for an endpoint: the same bytes on every attempt. */
function webhookBody(delivery: DueDelivery): string {
  const version = versionNamed(delivery.apiVersion);
  const { id, type, timestamp, sequence, data } = render(eventObject(delivery), version);
  return JSON.stringify({ id, type, timestamp, api_version: version, sequence, data });
}
