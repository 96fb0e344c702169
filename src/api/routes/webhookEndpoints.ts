import { webhookEndpointListParams } from '../../contract/listParams.js';
import { webhookEndpointObject } from '../../contract/objects.js';
import { webhookEndpointParams, webhookEndpointUpdateParams } from '../../contract/params.js';
import { newId } from '../../db/id.js';
import {
  countWebhookEndpoints,
  deleteWebhookEndpoint,
  findWebhookEndpoint,
  insertWebhookEndpoint,
  listWebhookEndpoints,
  updateWebhookEndpoint,
} from '../../db/webhookEndpoints.js';
import { type Refusal, refuse } from '../../domain/refusal.js';
import { expectedOfWebhookUrl } from '../../webhooks/guard.js';
import { createWebhookSecret } from '../../webhooks/signature.js';
import { deleteOnce, runIdempotently } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import { type ApiDeps, notFound, oneObject, type Route, route } from '../route.js';

/** Every event is written once for each endpoint, so their number is a factor of the work. */
const maximumEndpoints = 16;

/** The refusal of a URL that is not allowed; none of one that is, or that was not sent. */
function refusedUrl({ webhookPolicy }: ApiDeps, url: string | undefined): Refusal | undefined {
  const expected = url === undefined ? undefined : expectedOfWebhookUrl(url, webhookPolicy);
  return expected === undefined
    ? undefined
    : refuse('webhook_url_refused', { param: 'url', expected });
}

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
          const refusal = refusedUrl(deps, params.url);
          if (refusal !== undefined) return refusal;
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
  route({
    method: 'post',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    operationId: 'updateWebhookEndpoint',
    summary: 'Update a webhook endpoint. To disable it cancels its pending deliveries for good.',
    params: webhookEndpointUpdateParams,
    examples: {
      'enable it again': { status: 'enabled' },
      'other events': { events: ['*'], description: 'All events, to the ledger' },
    },
    answers: { 200: 'webhook_endpoint' },
    refusals: ['webhook_url_refused'],
    handle: (deps, request, { api_version: apiVersion, ...changes }) =>
      runIdempotently(deps, request, {
        objectId: request.id,
        status: 200,
        perform: async (sql) =>
          refusedUrl(deps, changes.url) ??
          (await updateWebhookEndpoint(sql, request.account.id, request.id, {
            ...changes,
            apiVersion,
          })) ??
          notFound(request),
        find: findWebhookEndpoint,
        render: webhookEndpointObject,
      }),
  }),
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
