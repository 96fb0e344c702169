import { eventListParams } from '../../contract/listParams.js';
import { deliveryObject, eventObject, listObject } from '../../contract/objects.js';
import { deliveriesOf } from '../../db/deliveries.js';
import { feedEvents, findEvent, listEvents } from '../../db/events.js';
import { byIdIn, exclusive, pageAnswer, readPage } from '../listPage.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  type Route,
  refused,
} from '../route.js';
import { validate } from '../validate.js';

export const eventRoutes: readonly Route[] = [
  {
    method: 'get',
    path: '/v1/events',
    scope: 'webhooks',
    handle: readEvents,
    operationId: 'listEvents',
    summary: 'List the events, newest first; with after, oldest first and without gaps.',
    params: eventListParams,
    answers: { 200: 'event_list' },
    refusals: ['cursor_not_found', 'parameters_exclusive'],
  },
  {
    method: 'get',
    path: '/v1/events/:id',
    scope: 'webhooks',
    handle: readEvent,
    operationId: 'readEvent',
    summary: 'Read an event.',
    answers: { 200: 'event' },
  },
  {
    method: 'get',
    path: '/v1/events/:id/deliveries',
    scope: 'webhooks',
    handle: readDeliveries,
    operationId: 'listDeliveries',
    summary: 'List who was told of an event, and how that went.',
    answers: { 200: 'delivery_list' },
  },
];

/**
 * The account's events, newest first like every list. With `after`, the sequence of an event or
 * 0, it is the feed: oldest first and without gaps, and what a webhook missed is found here.
 */
async function readEvents(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(eventListParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { after, limit, payout: payoutId, ...params } = validated.params;
  const { id: accountId } = request.account;
  if (after !== undefined) {
    // A feed that leaves some out would have gaps.
    const others = Object.keys(request.decoded).filter((name) => !/^(after|limit)$/.test(name));
    if (others.length > 0) return refused(...others.map((name) => exclusive(name, 'after')));
    return pageAnswer(await feedEvents(deps.database, accountId, after, limit), eventObject);
  }
  const page = await readPage(deps, request, { limit, ...params }, byIdIn('events'));
  if ('refusals' in page) return page;
  const filter = { created: params.created, type: params.type, subjectId: payoutId };
  return pageAnswer(await listEvents(deps.database, accountId, page, filter), eventObject);
}

async function readEvent(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const event = await findEvent(deps.database, request.account.id, request.id);
  if (event === undefined) return refused(notFound(request));
  return { status: 200, body: eventObject(event) };
}

/** Every endpoint that the event was for, with its attempts so far; one page. */
async function readDeliveries(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const event = await findEvent(deps.database, request.account.id, request.id);
  if (event === undefined) return refused(notFound(request));
  const deliveries = await deliveriesOf(deps.database, event.id);
  return { status: 200, body: listObject(deliveries.map(deliveryObject)) };
}
