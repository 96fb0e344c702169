import { z } from 'zod';
import { count, idOf, time } from './shapes.js';

/** Schemas of deliveries, which report what became of an event at an endpoint. */

export const delivery = z.object({
  object: z.literal('delivery'),
  event: idOf('evt'),
  webhook_endpoint: idOf('we'),
  status: z.enum(['pending', 'delivered', 'exhausted', 'canceled']),
  attempt_count: count.describe('Since the event, or since it was last redelivered.'),
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
  next_attempt_at: time.nullable().describe('When the attempt after it was due.'),
});

/** The challenge that an endpoint must answer before it receives events. */
export const webhookChallenge = z.object({
  webhook_endpoint: idOf('we'),
  challenge: z.string().describe('Respond with it alone, as text or as {"challenge": "…"}.'),
});

/** The outcome of a test message. */
export const webhookTest = z.object({
  object: z.literal('webhook_test'),
  webhook_endpoint: idOf('we'),
  delivered: z.boolean().describe('Whether the response was 2xx.'),
  http_status: z.int().nullable().describe('Null if there was no response.'),
  latency_ms: count.nullable().describe('Null if what came of it is not known.'),
  error: z.string().nullable().describe('Null if it was delivered.'),
  response: z.string().nullable().describe('The first 2 KiB of the response.'),
});

export const redelivery = z.object({
  object: z.literal('redelivery'),
  webhook_endpoint: idOf('we'),
  pending: count.describe('Deliveries on their way to the endpoint.'),
  has_more: z.boolean().describe('Whether more has failed since: send it with another key.'),
});
export const deliveryWithAttempts = delivery.extend({
  attempts: z.array(deliveryAttempt).describe('Newest first, and the last 20 at most.'),
});
