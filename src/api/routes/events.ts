import { eventObject, listObject } from '../../contract/objects.js';
import { eventListParams } from '../../contract/params.js';
import { listEvents } from '../../db/events.js';
import type { Answer, ApiDeps, ApiRequest, Route } from '../route.js';
import { validate } from '../validate.js';

export const eventRoutes: readonly Route[] = [
  {
    method: 'get',
    path: '/v1/events',
    handle: readEvents,
    operationId: 'listEvents',
    summary: 'List the events after a sequence, oldest first.',
    params: eventListParams,
    statuses: [200],
    response: 'event_list',
  },
];

/** The account's events after a sequence, oldest first: what a webhook missed is found here. */
async function readEvents(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(eventListParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { after, limit } = validated.params;
  // One more than asked for tells whether there are more.
  const rows = await listEvents(deps.database, request.account.id, { after, limit: limit + 1 });
  const page = rows.slice(0, limit).map(eventObject);
  return { status: 200, body: listObject(page, rows.length > limit) };
}
