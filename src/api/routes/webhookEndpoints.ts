import { webhookEndpointListParams } from '../../contract/listParams.js';
import { webhookEndpointObject } from '../../contract/objects.js';
import { webhookEndpointParams } from '../../contract/params.js';
import type { Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import {
  countWebhookEndpoints,
  deleteWebhookEndpoint,
  findWebhookEndpoint,
  insertWebhookEndpoint,
  listWebhookEndpoints,
} from '../../db/webhookEndpoints.js';
import { refuse } from '../../domain/refusal.js';
import { checkWebhookUrl } from '../../webhooks/guard.js';
import { createWebhookSecret } from '../../webhooks/signature.js';
import { runIdempotently } from '../idempotency.js';
import { byIdIn, pageAnswer, readPage } from '../listPage.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  type Route,
  refused,
} from '../route.js';
import { validate } from '../validate.js';

export const webhookEndpointRoutes: readonly Route[] = [
  {
    method: 'post',
    path: '/v1/webhook_endpoints',
    scope: 'webhooks',
    handle: createEndpoint,
    operationId: 'createWebhookEndpoint',
    summary: 'Have events sent to a URL; only this answer shows the secret that signs them.',
    params: webhookEndpointParams,
    examples: {
      'what became of payouts': {
        url: 'https://example.com/corridor',
        events: ['payout.settled', 'payout.failed', 'payout.returned'],
      },
    },
    answers: { 201: 'webhook_endpoint_with_secret' },
    refusals: ['webhook_url_refused', 'limit_reached'],
  },
  {
    method: 'get',
    path: '/v1/webhook_endpoints',
    scope: 'webhooks',
    handle: listEndpoints,
    operationId: 'listWebhookEndpoints',
    summary: 'List the webhook endpoints of the account.',
    params: webhookEndpointListParams,
    answers: { 200: 'webhook_endpoint_list' },
    refusals: ['cursor_not_found', 'parameters_exclusive'],
  },
  {
    method: 'get',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    handle: readEndpoint,
    operationId: 'readWebhookEndpoint',
    summary: 'Read a webhook endpoint.',
    answers: { 200: 'webhook_endpoint' },
  },
  {
    method: 'delete',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    handle: removeEndpoint,
    operationId: 'deleteWebhookEndpoint',
    summary: 'Delete a webhook endpoint; it is sent nothing more.',
    answers: { 200: 'webhook_endpoint' },
  },
];

/** Every event is written once for each endpoint, so their number is a factor of the work. */
const maximumEndpoints = 16;

/** Stores an endpoint. The answer, and a replay of it, is the only place that shows its secret. */
async function createEndpoint(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(webhookEndpointParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { url, events } = validated.params;
  const id = newId('webhookEndpoint');
  const accountId = request.account.id;
  return runIdempotently(deps, request, {
    objectId: id,
    status: 201,
    perform: async (sql) => {
      const fault = checkWebhookUrl(url, deps.webhookPolicy);
      if (fault !== undefined) return refuse('webhook_url_refused', { param: 'url', ...fault });
      if ((await countWebhookEndpoints(sql, accountId)) >= maximumEndpoints) {
        return refuse('limit_reached', { expected: `at most ${maximumEndpoints} endpoints` });
      }
      const secret = createWebhookSecret();
      const { apiVersion } = request.account;
      const row = await insertWebhookEndpoint(sql, {
        id,
        accountId,
        url,
        events,
        secret,
        apiVersion,
      });
      return { ...webhookEndpointObject(row), secret };
    },
    replay: async (sql, objectId) => {
      const row = await existingEndpoint(sql, accountId, objectId);
      return { ...webhookEndpointObject(row), secret: row.secret };
    },
  });
}

async function listEndpoints(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(webhookEndpointListParams, request.decoded);
  if ('refusals' in validated) return validated;
  const page = await readPage(deps, request, validated.params, byIdIn('webhook_endpoints'));
  if ('refusals' in page) return page;
  const { id: accountId } = request.account;
  const endpoints = await listWebhookEndpoints(deps.database, accountId, page, validated.params);
  return pageAnswer(endpoints, webhookEndpointObject);
}

async function readEndpoint(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const row = await findWebhookEndpoint(deps.database, request.account.id, request.id);
  if (row === undefined || row.deletedAt !== null) {
    return refused(notFound(request));
  }
  return { status: 200, body: webhookEndpointObject(row) };
}

async function removeEndpoint(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const accountId = request.account.id;
  return runIdempotently(deps, request, {
    objectId: request.id,
    status: 200,
    perform: async (sql) => {
      const row = await deleteWebhookEndpoint(sql, accountId, request.id);
      if (row === undefined) return notFound(request);
      return webhookEndpointObject(row);
    },
    replay: async (sql, objectId) =>
      webhookEndpointObject(await existingEndpoint(sql, accountId, objectId)),
  });
}

async function existingEndpoint(sql: Sql, accountId: string, id: string) {
  const row = await findWebhookEndpoint(sql, accountId, id);
  if (row === undefined) throw new Error(`The endpoint ${id} of a bound key has vanished.`);
  return row;
}
