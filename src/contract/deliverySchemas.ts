import { z } from 'zod';
import { count, idOf, objectOf, time } from './shapes.js';

/** Schemas of deliveries, which report what became of an event at an endpoint. */

export const delivery = objectOf('delivery', {
  event: idOf('evt'),
  webhook_endpoint: idOf('we'),
  status: z.enum(['pending', 'delivered', 'exhausted', 'canceled']),
  attempt_count: count.describe('Attempts since the event occurred or was last redelivered.'),
  last_attempt_at: time.nullable(),
  last_status: z.int().nullable().describe('The HTTP status of the last attempt.'),
  last_error: z.string().nullable(),
  last_latency_ms: count.nullable(),
  next_attempt_at: time.nullable(),
});

const deliveryAttempt = z.object({
  at: time,
  http_status: z.int().nullable().describe('Null if there was no response.'),
  latency_ms: count.nullable(),
  error: z.string().nullable().describe('Null if the attempt succeeded.'),
  response: z.string().nullable().describe('The first 2 KiB of the response to a failed attempt.'),
  next_attempt_at: time.nullable().describe('When the attempt after this one was due.'),
});

/** The challenge that an endpoint must answer before it receives events. */
export const webhookChallenge = z.object({
  webhook_endpoint: idOf('we'),
  challenge: z.string().describe('Respond with only this, as text or as {"challenge": "…"}.'),
});

/** The outcome of a test message. */
export const webhookTest = objectOf('webhook_test', {
  webhook_endpoint: idOf('we'),
  delivered: z.boolean().describe('Whether the response was 2xx.'),
  http_status: z.int().nullable().describe('Null if there was no response.'),
  latency_ms: count.nullable().describe('Null if the outcome is unknown.'),
  error: z.string().nullable().describe('Null if the message was delivered.'),
  response: z.string().nullable().describe('The first 2 KiB of the response.'),
});

export const redelivery = objectOf('redelivery', {
  webhook_endpoint: idOf('we'),
  pending: count.describe('The number of pending deliveries to the endpoint.'),
  has_more: z
    .boolean()
    .describe('Whether failed deliveries remain: send another request with a new idempotency key.'),
});
export const deliveryWithAttempts = delivery.extend({
  attempts: z.array(deliveryAttempt).describe('The last 20 attempts at most, newest first.'),
});
