import { createHash } from 'node:crypto';
import { eventObject } from '../contract/objects.js';
import { render, versionNamed } from '../contract/versions/index.js';
import type { DueDelivery } from '../db/deliveries.js';
import { eventBatch } from '../domain/event.js';

/** What one request brings: an event, or a batch of them. */
export type WebhookMessage = {
  /** The `webhook-id`: of the event, or made of those of the batch. */
  readonly id: string;
  /** The first of the deliveries: all of them agree in where and how they are sent. */
  readonly to: DueDelivery;
  readonly deliveries: readonly DueDelivery[];
  /** The same bytes on every attempt. It throws where the event cannot be rendered. */
  readonly body: () => string;
};

type Rendered = { readonly delivery: DueDelivery; readonly text: string };
type Batch = [Rendered, ...Rendered[]];

/** As many as the longest page of a list: a receiver that catches up takes so many at once as well. */
const batchEvents = 100;

/** A quarter of the 1 MiB that common servers take; 200 bytes are left for what is around the events. */
const batchBytes = 256 * 1024 - 200;

/**
 * The requests that bring what one claim has taken, each event in one of them. A claim is one
 * statement, which sees an endpoint in one state: so all that it takes for it has one URL, one version
 * and the same secrets.
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

/** An event as text; nothing of one that cannot be rendered: by itself it fails without the others. */
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
 * Splits events that were attempted as often, in their order, by number and size. Each attempt takes
 * half as many together: one that a receiver refuses, or a body too large for it, fails alone in the end.
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

/** Its id and bytes follow from its events alone, so a batch that is tried again is the same. */
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

/** The bytes of an event for an endpoint: the same on every attempt. */
function webhookBody(delivery: DueDelivery): string {
  const version = versionNamed(delivery.apiVersion);
  const { id, type, timestamp, sequence, data } = render(eventObject(delivery), version);
  return JSON.stringify({ id, type, timestamp, api_version: version, sequence, data });
}
