import type { z } from 'zod';
import { webhookEndpointListParams } from '../../contract/listParams.js';
import { webhookEndpointObject } from '../../contract/objects.js';
import {
  rotateSecretParams,
  webhookEndpointParams,
  webhookEndpointUpdateParams,
} from '../../contract/params.js';
import { exactlyOne, type Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { findKeys } from '../../db/idempotency.js';
import {
  countWebhookEndpoints,
  deleteWebhookEndpoint,
  enableVerified,
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
import { isRefusal, type Refusal, refuse } from '../../domain/refusal.js';
import { expectedOfWebhookUrl, isOwnMachine } from '../../webhooks/guard.js';
import { createWebhookSecret } from '../../webhooks/signature.js';
import { bindRequest, changeOnce, runIdempotently } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  oneObject,
  type Route,
  refused,
  route,
} from '../route.js';
import { challenge, sendProbe } from '../webhookProbe.js';

/**
 * Maximum number of endpoints of an account. It multiplies the work: each event is written once per endpoint.
 */
const maximumEndpoints = 16;

/**
 * How long a repeat still shows a new secret. A repeat may come late, after an outage, but an idempotency key
 * that leaks later must not reveal the signing secret.
 */
const secretShownForMs = 60 * 60_000;

type WithSecret = WebhookEndpointRow & { readonly secret: string | null };

/** How the two routes that show a secret find and render an endpoint: a repeat shows its own one while it is new. */
const showsSecret = ({ keyring }: ApiDeps, { idempotencyKey: key = '' }: ApiRequest) => ({
  find: async (sql: Sql, accountId: string, id: string): Promise<WithSecret | undefined> => {
    const row = await findWebhookEndpoint(sql, accountId, id);
    if (row === undefined) return undefined;
    const madeAtMs = row.secretSince.getTime();
    const [first] = await findKeys(sql, accountId, [key]);
    // One transaction binds the key and makes the secret. A later rotation made another one.
    const isOwn = first?.createdAt.getTime() === madeAtMs;
    const isNew = row.deletedAt === null && isOwn && Date.now() - madeAtMs < secretShownForMs;
    const [secret = null] = isNew ? await webhookSecretsOf(sql, keyring, id) : [];
    return { ...row, secret };
  },
  render: (row: WithSecret) => ({ ...webhookEndpointObject(row), secret: row.secret }),
});

/** How a route finds and renders the endpoint that it has changed. */
const shown = { find: findWebhookEndpoint, render: webhookEndpointObject };

/** Refuses a URL that is not allowed, and a signature for which the service has no key. */
function refusedParams(
  { webhookPolicy, webhookKeys }: ApiDeps,
  { url, signature }: z.infer<typeof webhookEndpointUpdateParams>,
): Refusal | undefined {
  if (signature === 'v1a' && webhookKeys.length === 0) {
    const expected = 'v1, as this service has no key for v1a';
    return refuse('parameter_invalid', { param: 'signature', expected, received: signature });
  }
  const expected = url === undefined ? undefined : expectedOfWebhookUrl(url, webhookPolicy);
  return expected === undefined
    ? undefined
    : refuse('webhook_url_refused', { param: 'url', expected });
}

async function findLive(sql: Sql, { account, id }: ApiRequest) {
  const row = await findWebhookEndpoint(sql, account.id, id);
  return row?.deletedAt === null ? row : undefined;
}

/** Refuses an operation on an unverified endpoint. */
export const unverified = () =>
  refuse('webhook_endpoint_unverified', {
    hint: 'Verify it first: POST /v1/webhook_endpoints/:id/verify.',
  });

type Ask = (url: string) => Refusal;

/**
 * Changes an endpoint, once per key. If `perform` asks for proof of a URL, sends it a challenge and, if that is
 * answered, performs again with the URL as proven. The challenge takes seconds, so no transaction waits for it.
 */
async function changeWithProof(
  deps: ApiDeps,
  request: ApiRequest,
  param: 'url' | undefined,
  perform: (sql: Sql, ask: Ask, proven?: string) => Promise<WebhookEndpointRow | Refusal>,
): Promise<Answer> {
  const { account, id } = request;
  let unproven: string | undefined;
  const ask: Ask = (url) => {
    unproven = url;
    // Never returned to the caller. It ends the transaction without using up the key.
    return refuse('service_unavailable');
  };
  const change = (proven?: string) =>
    runIdempotently(deps, request, {
      ...{ objectId: id, status: 200, ...shown },
      perform: (sql) => perform(sql, ask, proven),
    });
  const answer = await change();
  if (unproven === undefined) return answer;
  const target = { accountId: account.id, id, url: unproven };
  return (await challenge(deps, target, param)) ?? change(unproven);
}

/** Updates an endpoint. A new URL for a verified endpoint must answer a challenge first. */
function updateEndpoint(
  deps: ApiDeps,
  request: ApiRequest,
  { api_version: apiVersion, ...changes }: z.infer<typeof webhookEndpointUpdateParams>,
): Promise<Answer> {
  const { account, id } = request;
  const { url, status } = changes;
  return changeWithProof(deps, request, 'url', async (sql, ask, proven) => {
    const refusal = refusedParams(deps, changes);
    if (refusal !== undefined) return refusal;
    const row = await lockWebhookEndpoint(sql, account.id, id);
    if (row === undefined) return notFound(request);
    if (row.status === 'unverified' && status !== undefined) return unverified();
    const isKnown = row.status === 'unverified' || url === row.url || url === proven;
    const isOwn = url === undefined || isOwnMachine(url, deps.webhookPolicy);
    if (!isKnown && !isOwn) return ask(url);
    return exactlyOne(await updateWebhookEndpoint(sql, account.id, id, { ...changes, apiVersion }));
  });
}

/**
 * Verifies an endpoint. An unanswered challenge does not use up the key: the repeat sends another one. A
 * disabled endpoint was verified before, and needs no challenge.
 */
function verifyEndpoint(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  return changeWithProof(deps, request, undefined, async (sql, ask, proven) => {
    const row = await findLive(sql, request);
    if (row?.status === 'unverified' && proven === undefined) return ask(row.url);
    await enableVerified(sql, request.id, proven ?? '');
    const after = await findLive(sql, request);
    // Its URL was changed meanwhile, so the challenge was answered by another URL.
    return after?.status === 'unverified' ? unverified() : (after ?? notFound(request));
  });
}

async function testEndpoint(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const row = await findLive(deps.database, request);
  if (row === undefined) return refused(notFound(request));
  if (row.status === 'unverified') return refused(unverified());
  const objectId = newId('webhookProbe');
  const bind = () => bindRequest(deps.database, deps, request, { objectId });
  const bound = await deps.writes(request.account.id, bind);
  if (isRefusal(bound)) return refused(bound);
  const outcome = await sendProbe(deps, row, 'test', bound.objectId);
  if ('refusals' in outcome)
    return { ...outcome, headers: { ...outcome.headers, ...bound.headers } };
  const body = { object: 'webhook_test', webhook_endpoint: row.id, ...outcome };
  return { status: 200, body, headers: bound.headers };
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
      'final states of payouts': {
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
        ...showsSecret(deps, request),
        perform: async (sql) => {
          const refusal = refusedParams(deps, params);
          if (refusal !== undefined) return refusal;
          if ((await countWebhookEndpoints(sql, accountId)) >= maximumEndpoints) {
            return refuse('limit_reached', { expected: `at most ${maximumEndpoints} endpoints` });
          }
          const secret = createWebhookSecret();
          const status = isOwnMachine(params.url, deps.webhookPolicy) ? 'enabled' : 'unverified';
          const endpoint = { ...params, id, accountId, secret, apiVersion, status } as const;
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
      const row = await findLive(database, request);
      return oneObject(request, row && webhookEndpointObject(row));
    },
  },
  route({
    method: 'post',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    operationId: 'updateWebhookEndpoint',
    summary: 'Update a webhook endpoint. Disabling it cancels its pending deliveries for good.',
    params: webhookEndpointUpdateParams,
    examples: {
      'enable it again': { status: 'enabled' },
      'other events': { events: ['*'], description: 'All events, to the ledger' },
    },
    answers: { 200: 'webhook_endpoint' },
    refusals: ['webhook_url_refused', 'webhook_challenge_failed', 'webhook_endpoint_unverified'],
    handle: updateEndpoint,
  }),
  {
    method: 'post',
    path: '/v1/webhook_endpoints/:id/verify',
    scope: 'webhooks',
    operationId: 'verifyWebhookEndpoint',
    summary: 'Send a challenge to an unverified endpoint, and enable the endpoint if it answers.',
    answers: { 200: 'webhook_endpoint' },
    refusals: ['webhook_challenge_failed', 'webhook_endpoint_unverified'],
    handle: verifyEndpoint,
  },
  {
    method: 'post',
    path: '/v1/webhook_endpoints/:id/test',
    scope: 'webhooks',
    operationId: 'testWebhookEndpoint',
    summary: 'Send one test message to a verified endpoint, and return the outcome.',
    answers: { 200: 'webhook_test' },
    refusals: ['webhook_endpoint_unverified'],
    handle: testEndpoint,
  },
  route({
    method: 'post',
    path: '/v1/webhook_endpoints/:id/rotate_secret',
    scope: 'webhooks',
    operationId: 'rotateWebhookEndpointSecret',
    summary:
      'Replace the signing secret. Both secrets sign during the overlap; 0 hours ends the old one at once.',
    params: rotateSecretParams,
    examples: { 'two days to change over': { overlap_hours: 48 } },
    answers: { 200: 'webhook_endpoint_with_secret' },
    refusals: ['secret_rotation_open'],
    handle: (deps, request, { overlap_hours: overlapHours }) =>
      runIdempotently(deps, request, {
        objectId: request.id,
        status: 200,
        ...showsSecret(deps, request),
        perform: async (sql) => {
          const row = await lockWebhookEndpoint(sql, request.account.id, request.id);
          if (row === undefined) return notFound(request);
          // A third secret would end the oldest one early. Only overlap_hours=0 asks for that.
          if (overlapHours > 0 && (row.previousSecretUntil ?? 0) > new Date()) {
            return refuse('secret_rotation_open', {
              hint: 'End the rotation with revoke_old_secret, or send overlap_hours=0 to keep only the new secret.',
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
    summary: 'End the overlap of a rotation: from now on, only the newest secret signs.',
    answers: { 200: 'webhook_endpoint' },
    handle: (deps, request) => changeOnce(deps, request, revokeOldSecret, shown),
  },
  {
    method: 'delete',
    path: '/v1/webhook_endpoints/:id',
    scope: 'webhooks',
    operationId: 'deleteWebhookEndpoint',
    summary: 'Delete a webhook endpoint. No more events are sent to it.',
    answers: { 200: 'webhook_endpoint' },
    handle: (deps, request) => changeOnce(deps, request, deleteWebhookEndpoint, shown),
  },
];
