import { deliveryListParams } from '../../contract/listParams.js';
import { deliveryObject } from '../../contract/objects.js';
import { deliveryPosition, listDeliveries } from '../../db/deliveries.js';
import { findWebhookEndpoint } from '../../db/webhookEndpoints.js';
import { listRoute } from '../listRoute.js';
import type { Route } from '../route.js';

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
];
