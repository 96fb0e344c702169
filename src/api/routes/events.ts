import type { z } from 'zod';
import { eventListParams } from '../../contract/listParams.js';
import { deliveryWithAttemptsObject, eventObject, listObject } from '../../contract/objects.js';
import { redeliverEventParams } from '../../contract/params.js';
import type { Sql } from '../../db/client.js';
import { attemptsAt, deliveriesOf } from '../../db/deliveryLog.js';
import { feedEvents, findEvent, listEvents } from '../../db/events.js';
import { redeliverEvent } from '../../db/redelivery.js';
import { refuse } from '../../domain/refusal.js';
import { type DecodedObject, flatten } from '../decoded.js';
import { runIdempotently } from '../idempotency.js';
import { byIdIn, exclusive, listRoute } from '../listRoute.js';
import {
  notFound,
  oneObject,
  type Route,
  refused,
  route,
  type Validated,
  validate,
} from '../route.js';
import { attemptDueNow } from './deliveries.js';

/**
 * Validates the parameters. The feed accepts no filter, because leaving out events would make gaps. An event
 * has only one subject, so payout and batch exclude each other.
 */
function readParams(decoded: DecodedObject): Validated<z.infer<typeof eventListParams>> {
  const validated = validate(eventListParams, decoded);
  if ('refusals' in validated) return validated;
  const { after, payout, batch } = validated.params;
  if (after === undefined) {
    const isBoth = payout !== undefined && batch !== undefined;
    return isBoth ? refused(exclusive('batch', 'payout')) : validated;
  }
  const others = flatten(decoded).filter(([name]) => !/^(after|limit)$/.test(name));
  if (others.length === 0) return validated;
  return refused(...others.map(([name]) => exclusive(name, 'after')));
}

export const eventRoutes: readonly Route[] = [
  listRoute({
    path: '/v1/events',
    scope: 'webhooks',
    operationId: 'listEvents',
    summary: 'List events, newest first; with after, oldest first and without gaps.',
    params: eventListParams,
    answers: { 200: 'event_list' },
    supportsPreferWait: true,
    feedPosition: (decoded) => {
      const read = readParams(decoded);
      return 'refusals' in read ? undefined : read.params.after;
    },
    read: ({ decoded }) => readParams(decoded),
    find: byIdIn('events'),
    // With `after` it is the feed, which has the events that a webhook missed.
    query: (sql, accountId, page, { after, payout, batch, ...filter }) =>
      after === undefined
        ? listEvents(sql, accountId, page, { ...filter, subjectId: payout ?? batch })
        : feedEvents(sql, accountId, after, page.limit),
    render: eventObject,
  }),
  {
    method: 'get',
    path: '/v1/events/:id',
    scope: 'webhooks',
    operationId: 'readEvent',
    summary: 'Retrieve an event.',
    answers: { 200: 'event' },
    handle: async ({ database }, request) => {
      const event = await findEvent(database, request.account.id, request.id);
      return oneObject(request, event && eventObject(event));
    },
  },
  {
    method: 'get',
    path: '/v1/events/:id/deliveries',
    scope: 'webhooks',
    operationId: 'listDeliveries',
    summary: 'List the deliveries of an event, one per endpoint, with their attempts.',
    answers: { 200: 'delivery_with_attempts_list' },
    // One page: every endpoint that the event was for, with its attempts so far.
    handle: async ({ database }, request) => {
      const event = await findEvent(database, request.account.id, request.id);
      if (event === undefined) return refused(notFound(request));
      return { status: 200, body: renderDeliveries(await findDeliveries(database, event.id)) };
    },
  },
  route({
    method: 'post',
    path: '/v1/events/:id/redeliver',
    scope: 'webhooks',
    operationId: 'redeliverEvent',
    summary:
      'Redeliver an event, with the same webhook-id, to one of its endpoints or to all of them.',
    params: redeliverEventParams,
    examples: { 'to every endpoint': {} },
    answers: { 200: 'delivery_with_attempts_list' },
    handle: async (deps, request, { webhook_endpoint: endpointId }) => {
      let due: readonly string[] = [];
      const answer = await runIdempotently(deps, request, {
        objectId: request.id,
        status: 200,
        perform: async (sql) => {
          const event = await findEvent(sql, request.account.id, request.id);
          if (event === undefined) return notFound(request);
          due = await redeliverEvent(sql, event.id, endpointId);
          const expected = 'an enabled endpoint that the event was for';
          return endpointId === undefined || due.includes(endpointId)
            ? findDeliveries(sql, event.id)
            : refuse('parameter_invalid', { param: 'webhook_endpoint', expected });
        },
        find: (sql, _accountId, id) => findDeliveries(sql, id),
        render: renderDeliveries,
      });
      await attemptDueNow(deps, due);
      return answer;
    },
  }),
];

async function findDeliveries(sql: Sql, eventId: string) {
  const deliveries = await deliveriesOf(sql, eventId);
  return { deliveries, attempts: await attemptsAt(sql, eventId) };
}

/** Renders the deliveries of an event with their attempts, as one page: an account has few endpoints. */
function renderDeliveries({ deliveries, attempts }: Awaited<ReturnType<typeof findDeliveries>>) {
  return listObject(deliveries.map((row) => deliveryWithAttemptsObject(row, attempts)));
}
