import { webhookEndpointListParams } from '../../contract/listParams.js';
import { webhookEndpointObject } from '../../contract/objects.js';
import { webhookEndpointParams } from '../../contract/params.js';
import { newId } from '../../db/id.js';
import {
  countWebhookEndpoints,
  deleteWebhookEndpoint,
  findWebhookEndpoint,
  insertWebhookEndpoint,
  listWebhookEndpoints,
} from '../../db/webhookEndpoints.js';
import { refuse } from '../../domain/refusal.js';
import { expectedOfWebhookUrl } from '../../webhooks/guard.js';
import { createWebhookSecret } from '../../webhooks/signature.js';
import { deleteOnce, runIdempotently } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import { oneObject, type Route, route } from '../route.js';

/** Every event is written once for each endpoint, so their number is a factor of the work. */
const maximumEndpoints = 16;

export const webhookEndpointRoutes: readonly Route[] = [
  route({
    method: 'post',
    path: '/v1/webhook_endpoints',
    scope: 'webhooks',
    operationId: 'createWebhookEndpoint',
    summary: 'Create a webhook endpoint. Only this response shows its signing secret.',
    params: webhookEndpointParams,
    examples: {
      'what became of payouts': {
        url: 'https://example.com/corridor',
        events: ['payout.settled', 'payout.failed', 'payout.returned'],
      },
    },
    answers: { 201: 'webhook_endpoint_with_secret' },
    refusals: ['webhook_url_refused', 'limit_reached'],
    // Its answer, and a replay of it, is the only place that shows the secret.
    handle: (deps, request, params) => {
      const id = newId('webhookEndpoint');
      const { id: accountId, apiVersion } = request.account;
      return runIdempotently(deps, request, {
        objectId: id,
        status: 201,
        perform: async (sql) => {
          const expected = expectedOfWebhookUrl(params.url, deps.webhookPolicy);
          if (expected !== undefined)
            return refuse('webhook_url_refused', { param: 'url', expected });
          if ((await countWebhookEndpoints(sql, accountId)) >= maximumEndpoints) {
            return refuse('limit_reached', { expected: `at most ${maximumEndpoints} endpoints` });
          }
          const secret = createWebhookSecret();
          return insertWebhookEndpoint(sql, { ...params, id, accountId, secret, apiVersion });
        },
        find: findWebhookEndpoint,
        render: (row) => ({ ...webhookEndpointObject(row), secret: row.secret }),
      });
    },
  }),
  listRoute({
    path: '/v1/webhook_endpoints',
    scope: 'webhooks',
    operationId: 'listWebhookEndpoints',
    summary: 'List webhook endpoints.',
    params: webhookEndpointListParams,
    answers: { 200: 'webhook_endpoint_list' },
    find: byIdIn('webhook_endpoints'),
    query: listWebhookEndpoints,
    render: webhookEndpointObject,
  }),
  {
    method: 'get',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    operationId: 'readWebhookEndpoint',
    summary: 'Retrieve a webhook endpoint.',
    answers: { 200: 'webhook_endpoint' },
    handle: async ({ database }, request) => {
      const row = await findWebhookEndpoint(database, request.account.id, request.id);
      return oneObject(request, row?.deletedAt === null ? webhookEndpointObject(row) : undefined);
    },
  },
  {
    method: 'delete',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    operationId: 'deleteWebhookEndpoint',
    summary: 'Delete a webhook endpoint. No more events are sent to it.',
    answers: { 200: 'webhook_endpoint' },
    handle: (deps, request) =>
      deleteOnce(deps, request, deleteWebhookEndpoint, {
        find: findWebhookEndpoint,
        render: webhookEndpointObject,
      }),
  },
];
