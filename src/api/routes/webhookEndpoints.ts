import { webhookEndpointListParams } from '../../contract/listParams.js';
import { webhookEndpointObject } from '../../contract/objects.js';
import {
  rotateSecretParams,
  webhookEndpointParams,
  webhookEndpointUpdateParams,
} from '../../contract/params.js';
import type { Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import {
  countWebhookEndpoints,
  deleteWebhookEndpoint,
  findWebhookEndpoint,
  insertWebhookEndpoint,
  listWebhookEndpoints,
  lockWebhookEndpoint,
  revokeOldSecret,
  rotateWebhookSecret,
  updateWebhookEndpoint,
  type WebhookEndpointRow,
} from '../../db/webhookEndpoints.js';
import { webhookSecretsOf } from '../../db/webhookSecrets.js';
import { type Refusal, refuse } from '../../domain/refusal.js';
import { expectedOfWebhookUrl } from '../../webhooks/guard.js';
import { createWebhookSecret } from '../../webhooks/signature.js';
import { changeOnce, runIdempotently } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import { type ApiDeps, notFound, oneObject, type Route, route } from '../route.js';

/** Every event is written once for each endpoint, so their number is a factor of the work. */
const maximumEndpoints = 16;

/** A repeat may come late, after an outage; a key that leaks later must not show what signs. */
const secretShownForMs = 60 * 60_000;

type WithSecret = WebhookEndpointRow & { readonly secret: string | null };

/** What the two routes that show a secret do with it: a repeat shows it while it is new. */
const showsSecret = ({ keyring }: ApiDeps) => ({
  find: async (sql: Sql, accountId: string, id: string): Promise<WithSecret | undefined> => {
    const row = await findWebhookEndpoint(sql, accountId, id);
    if (row === undefined) return undefined;
    const isNew =
      row.deletedAt === null && Date.now() - row.secretSince.getTime() < secretShownForMs;
    const [secret = null] = isNew ? await webhookSecretsOf(sql, keyring, id) : [];
    return { ...row, secret };
  },
  render: (row: WithSecret) => ({ ...webhookEndpointObject(row), secret: row.secret }),
});

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
    handle: (deps, request, params) => {
      const id = newId('webhookEndpoint');
      const { id: accountId, apiVersion } = request.account;
      return runIdempotently(deps, request, {
        objectId: id,
        status: 201,
        ...showsSecret(deps),
        perform: async (sql) => {
          const refusal = refusedUrl(deps, params.url);
          if (refusal !== undefined) return refusal;
          if ((await countWebhookEndpoints(sql, accountId)) >= maximumEndpoints) {
            return refuse('limit_reached', { expected: `at most ${maximumEndpoints} endpoints` });
          }
          const secret = createWebhookSecret();
          const endpoint = { ...params, id, accountId, secret, apiVersion };
          return { ...(await insertWebhookEndpoint(sql, deps.keyring, endpoint)), secret };
        },
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
  route({
    method: 'post',
    path: '/v1/webhook_endpoints/:id/rotate_secret',
    scope: 'webhooks',
    operationId: 'rotateWebhookEndpointSecret',
    summary:
      'Replace the signing secret. Both sign while they overlap; 0 hours ends the old at once.',
    params: rotateSecretParams,
    examples: { 'two days to change over': { overlap_hours: 48 } },
    answers: { 200: 'webhook_endpoint_with_secret' },
    refusals: ['secret_rotation_open'],
    handle: (deps, request, { overlap_hours: overlapHours }) =>
      runIdempotently(deps, request, {
        objectId: request.id,
        status: 200,
        ...showsSecret(deps),
        perform: async (sql) => {
          const row = await lockWebhookEndpoint(sql, request.account.id, request.id);
          if (row === undefined) return notFound(request);
          // A third secret would end the oldest before its time. Who says 0 means just that.
          if (overlapHours > 0 && (row.previousSecretUntil ?? 0) > new Date()) {
            return refuse('secret_rotation_open', {
              hint: 'End it by revoke_old_secret, or send overlap_hours=0 to keep the new secret alone.',
            });
          }
          const secret = createWebhookSecret();
          const change = { secret, overlapHours };
          return { ...(await rotateWebhookSecret(sql, deps.keyring, row, change)), secret };
        },
      }),
  }),
  {
    method: 'post',
    path: '/v1/webhook_endpoints/:id/revoke_old_secret',
    scope: 'webhooks',
    operationId: 'revokeOldWebhookEndpointSecret',
    summary: 'End the overlap of a rotation: only the newest secret signs from now on.',
    answers: { 200: 'webhook_endpoint' },
    handle: (deps, request) =>
      changeOnce(deps, request, revokeOldSecret, {
        find: findWebhookEndpoint,
        render: webhookEndpointObject,
      }),
  },
  {
    method: 'delete',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    operationId: 'deleteWebhookEndpoint',
    summary: 'Delete a webhook endpoint. No more events are sent to it.',
    answers: { 200: 'webhook_endpoint' },
    handle: (deps, request) =>
      changeOnce(deps, request, deleteWebhookEndpoint, {
        find: findWebhookEndpoint,
        render: webhookEndpointObject,
      }),
  },
];
