import { deliveryListParams } from '../../contract/listParams.js';
import { deliveryObject, redeliveryObject } from '../../contract/objects.js';
import { redeliverFailedParams } from '../../contract/params.js';
import { deliveryPosition, listDeliveries } from '../../db/deliveryLog.js';
import { countFailed, redeliverFailed, redeliverRange, redeliveryOf } from '../../db/redelivery.js';
import { findWebhookEndpoint, lockWebhookEndpoint } from '../../db/webhookEndpoints.js';
import { refuse } from '../../domain/refusal.js';
import { tryTemporal, wakeEndpoint } from '../../temporal/workflowCalls.js';
import { runIdempotently } from '../idempotency.js';
import { exclusive, listRoute } from '../listRoute.js';
import { type ApiDeps, notFound, type Route, refused, route } from '../route.js';
import { unverified } from './webhookEndpoints.js';

export const deliveryRoutes: readonly Route[] = [
  listRoute({
    path: '/v1/webhook_endpoints/:id/deliveries',
    scope: 'webhooks',
    operationId: 'listEndpointDeliveries',
    summary: 'List the deliveries to an endpoint, newest event first.',
    params: deliveryListParams,
    answers: { 200: 'delivery_list' },
    owner: async (sql, accountId, id) => (await findWebhookEndpoint(sql, accountId, id))?.id,
    find: deliveryPosition,
    found: 'the event of a delivery to this endpoint',
    query: listDeliveries,
    render: deliveryObject,
  }),
  route({
    method: 'post',
    path: '/v1/webhook_endpoints/:id/redeliver',
    scope: 'webhooks',
    operationId: 'redeliverFailed',
    summary:
      'Redeliver up to 10,000 events to an endpoint: those that failed since a time, or all in a range.',
    params: redeliverFailedParams,
    examples: {
      'since an outage': { since: '2026-11-21T12:00:00Z' },
      'all of a range': { from_sequence: 1, to_sequence: 10_000 },
    },
    answers: { 200: 'redelivery' },
    refusals: ['parameters_exclusive', 'webhook_endpoint_unverified', 'webhook_endpoint_disabled'],
    handle: async (deps, request, { since, from_sequence: from, to_sequence: to }) => {
      const isRange = from !== undefined && to !== undefined;
      const end = from === undefined ? 'to_sequence' : 'from_sequence';
      if (since && (from ?? to)) return refused(exclusive('since', end));
      const count =
        since && (await countFailed(deps.database, request.account.id, request.id, since));
      const tooHeavy = request.takeItems(count ?? (isRange ? Number(to - from) + 1 : 0));
      if (tooHeavy !== undefined) return refused(tooHeavy);
      const answer = await runIdempotently(deps, request, {
        objectId: request.id,
        status: 200,
        perform: async (sql) => {
          const endpoint = await lockWebhookEndpoint(sql, request.account.id, request.id);
          if (endpoint?.status === 'unverified') return unverified();
          if (endpoint === undefined) return notFound(request);
          if (endpoint.status === 'disabled')
            return refuse('webhook_endpoint_disabled', { hint: 'Enable the endpoint first.' });
          if (since !== undefined) await redeliverFailed(sql, endpoint.id, since);
          if (isRange) await redeliverRange(sql, endpoint, from, to);
          return redeliveryOf(sql, endpoint.id, since);
        },
        find: (sql, _accountId, id) => redeliveryOf(sql, id, since),
        render: redeliveryObject,
      });
      await attemptDueNow(deps, 'refusals' in answer ? [] : [request.id]);
      return answer;
    },
  }),
];

/** Has the endpoints' workflows attempt what is due now. Otherwise the sweep, every 5 s, would do so. */
export async function attemptDueNow(deps: ApiDeps, ids: readonly string[]): Promise<void> {
  const wake = (id: string) =>
    tryTemporal(deps, { webhook_endpoint: id }, () => wakeEndpoint(deps.temporal, id));
  await Promise.all(ids.map(wake));
}
