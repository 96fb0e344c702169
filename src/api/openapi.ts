import { STATUS_CODES } from 'node:http';
import { type ObjectName, objectsOf } from '../contract/schemas.js';
import {
  type ApiVersion,
  apiVersions,
  defaultApiVersion,
  type JsonObject,
} from '../contract/versions/index.js';
import { webhookExample } from '../contract/webhookExamples.js';
import { eventBatch, probeTypes, type WebhookType, webhookTypes } from '../domain/event.js';
import { meaningOf, type RefusalCode } from '../domain/refusal.js';
import {
  formEncoding,
  formName,
  hasBody,
  jsonName,
  type PublishedSchemas,
  publishedSchemas,
  queryParameters,
  reference,
} from './openapiParams.js';
import { type Route, scopesReaching, sendsMoney } from './route.js';

/**
 * Builds the OpenAPI 3.1 document of a version from the schemas that validate requests, the route table and
 * the table of refusals, so that it always agrees with the service.
 */
export function openapiDocument(routes: readonly Route[], version: ApiVersion): JsonObject {
  const schemas = publishedSchemas(routes, version);
  const headers = Object.entries(requestHeaders).map(
    ([name, header]) => [name, { name, in: 'header', ...header }] as const,
  );
  return {
    openapi: '3.1.1',
    info: {
      ...{ title: 'Corridor', version, summary: 'Cross-currency payouts.', description },
      contact: { name: 'The operator of the service' },
      license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'The host that serves this document.' }],
    security: [{ api_key: [] }],
    tags: [...new Set(routes.map(tagOf))].map((name) => ({ name, description: tags[name] })),
    paths: pathsOf(routes, schemas),
    webhooks: Object.fromEntries(webhookTypes.map((type) => [type, webhookOf(type, version)])),
    components: {
      securitySchemes: { api_key: { type: 'http', scheme: 'bearer', description: keyDescription } },
      schemas: { ...schemas.components, api_version: { type: 'string', enum: [version] } },
      parameters: Object.fromEntries(headers),
      headers: answerHeaders,
    },
  };
}

const description = `Prices a currency corridor, holds the rate for 30 seconds, sends payouts one by one or 10,000 at a time, and confirms settlement by signed webhook.

Integers are minor units; decimal strings are major units. Send parameters as a form (nested names in brackets: \`payouts[0][beneficiary]\`) or as JSON. Errors are problem details (RFC 9457). [/docs](/docs) has guides with examples, [/docs/errors](/docs/errors) explains every code.`;

const keyDescription = 'An API key of the account: `cor_test_…` or `cor_live_…`.';

const tags: Readonly<Record<string, string>> = {
  quotes: 'Prices, each held for 30 seconds.',
  payouts: 'Payments to beneficiaries: send, follow and cancel them.',
  batches: 'Up to 10,000 payouts in one request.',
  beneficiaries: 'Recipients of payouts, with validated account details.',
  balances: 'The funds of the account, by currency.',
  balance_transactions: 'Every movement of a balance.',
  test: 'Operations for test accounts only.',
  webhook_endpoints: 'URLs to which events are sent.',
  events: 'Changes to payouts, batches and endpoints, and their deliveries.',
  corridors: 'Currency pairs that can be paid, with fees and limits.',
  rates: 'The current rates of corridors, and past mid rates.',
  limits: 'The maximum amounts that the account may send.',
  beneficiary_requirements: 'The details of a beneficiary that a country requires.',
  account: 'The account of the API key.',
};

/** Returns the tag of a route: `/v1/webhook_endpoints/:id` belongs to webhook_endpoints. */
function tagOf(route: Route): string {
  return route.path.split('/')[2] ?? '';
}

function pathsOf(routes: readonly Route[], schemas: PublishedSchemas): JsonObject {
  const paths: Record<string, Record<string, JsonObject>> = {};
  for (const route of routes) {
    const path = route.path.replace(':id', '{id}');
    paths[path] = { ...paths[path], [route.method]: operationOf(route, schemas) };
  }
  return paths;
}

function operationOf(route: Route, schemas: PublishedSchemas): JsonObject {
  const scopes = scopesReaching(route).map((scope) => `\`${scope}\``);
  return {
    operationId: route.operationId,
    summary: route.summary,
    description: `The API key needs the scope ${scopes.join(' or ')}.`,
    tags: [tagOf(route)],
    parameters: parametersOf(route, schemas),
    ...(hasBody(route) ? { requestBody: bodyOf(route, schemas) } : {}),
    responses: { ...successesOf(route), ...problemsOf(route) },
  };
}

function parametersOf(route: Route, { paramsOf }: PublishedSchemas): readonly JsonObject[] {
  const names: (keyof typeof requestHeaders)[] = ['Corridor-Version'];
  if (route.method !== 'get') names.push('Idempotency-Key');
  if (route.supportsPreferWait === true) names.push('Prefer');
  const id = { name: 'id', in: 'path', required: true, ...text('The id of the object.') };
  return [
    ...(route.path.includes(':id') ? [id] : []),
    ...(route.method === 'get' ? queryParameters(paramsOf(route)) : []),
    // A body of lines has no place for parameters of the whole request. With other bodies they may be in the
    // query too.
    ...(route.acceptsLineFormats === true ? queryParameters(paramsOf(route), 'payouts') : []),
    ...names.map((name) => ({ $ref: `#/components/parameters/${name}` })),
  ];
}

const requestHeaders = {
  'Corridor-Version': {
    description:
      "The API version of this request; without it, the account's version. This document describes one version.",
    schema: { $ref: reference('api_version') },
  },
  'Idempotency-Key': text(
    'A unique value for every new request. A retry with the same key returns the result of the first request and is not executed again.',
    { pattern: '^[\\x21-\\x7e]{1,255}$' },
  ),
  Prefer: text(
    'wait=N: respond when the payout is final or an event follows `after`, or after N seconds (at most 30).',
    { examples: ['wait=10'] },
  ),
} as const;

/** Describes a string in a header or in the path. */
function text(description: string, schema: JsonObject = {}): JsonObject {
  return { description, schema: { type: 'string', ...schema } };
}

function bodyOf(route: Route, { paramsOf }: PublishedSchemas): JsonObject {
  const hasLines = route.acceptsLineFormats === true;
  const examples = Object.fromEntries(
    Object.entries(route.examples ?? {}).map(([summary, value]) => [summary, { summary, value }]),
  );
  const schemaOf = (name: string) => ({ schema: { $ref: reference(name) } });
  const form = { ...schemaOf(formName(route)), ...formEncoding(paramsOf(route)) };
  return {
    required: Object.keys(examples).length > 0,
    content: {
      'application/json': { ...schemaOf(jsonName(route)), examples },
      // A form cannot express the lists in the examples.
      'application/x-www-form-urlencoded': hasLines ? form : { ...form, examples },
      ...(hasLines ? lines : {}),
    },
  };
}

/** Describes a body with one item per line; the other parameters are in the query. */
const line = (description: string, example: string) => ({
  schema: { type: 'string', description },
  example,
});
const lines = {
  'application/x-ndjson': line(
    'One payout per line, as JSON.',
    '{"beneficiary":"bnf_01ky","source_currency":"USD","amount":5000}\n',
  ),
  'text/csv': line(
    'RFC 4180, with a header row of parameter names.',
    'beneficiary,source_currency,amount,metadata[order]\nbnf_01ky,USD,5000,7\n',
  ),
} as const;

function successesOf(route: Route): JsonObject {
  const answers = Object.entries(route.answers).map(([status, name]) => {
    const description = STATUS_CODES[status] ?? '';
    const headers = headersOf(route, { location: locates(route, status, name) });
    const content = { 'application/json': { schema: { $ref: reference(name) } } };
    return [status, { description, headers, content }] as const;
  });
  return Object.fromEntries(answers);
}

/** Whether a response has the Location of a new object: see serveRoute.ts. */
function locates(route: Route, status: string, name: ObjectName): boolean {
  const { shape } = objectsOf[defaultApiVersion][name];
  return status !== '200' && 'id' in shape && !route.path.includes(':id');
}

/** Describes the refusals: one entry per status, with the codes that it may carry. All have one schema. */
function problemsOf(route: Route): JsonObject {
  const codesOf = Map.groupBy(refusalsOf(route), (code) => meaningOf(code).status);
  const content = { 'application/problem+json': { schema: { $ref: reference('problem') } } };
  const problems = [...codesOf].map(([status, codes]) => {
    const description = codes.map((name) => `\`${name}\`: ${meaningOf(name).title}`).join('\n\n');
    const headers = headersOf(route, { retryAfter: [409, 429, 503].includes(status) });
    return [status, { description, headers, content, 'x-error-codes': codes }] as const;
  });
  return Object.fromEntries(problems);
}

/** Returns the refusals of a route: its own, and those of all routes of its kind. */
function refusalsOf(route: Route): readonly RefusalCode[] {
  const codes: RefusalCode[] = [
    ...(['parameter_invalid', 'parameter_unknown', 'body_malformed', 'header_invalid'] as const),
    ...(['api_version_unknown', 'api_key_missing', 'api_key_invalid'] as const),
    ...(['request_malformed', 'headers_too_large'] as const),
    ...(['address_not_allowed', 'scope_missing', 'rate_limited', 'too_many_in_flight'] as const),
    ...(['content_type_unsupported', 'internal_error', 'service_unavailable'] as const),
  ];
  if (route.method === 'post') codes.push('parameter_missing', 'body_too_large', 'request_timeout');
  if (route.method !== 'get') codes.push('idempotency_key_reused', 'request_in_progress');
  if (route.method !== 'get') codes.push('account_closed');
  if (sendsMoney(route)) codes.push('account_frozen');
  if (route.path.includes(':id')) codes.push('not_found');
  return [...codes, ...(route.refusals ?? [])];
}

const answerHeaders = {
  RateLimit: text('The remainder of each quota, and the seconds until that quota is full again.'),
  'RateLimit-Policy': text(
    'The quotas of the account for requests and for items, each with its window in seconds.',
  ),
  'Request-Id': text('Identifies this request in the logs of the service.', { pattern: '^req_' }),
  'Corridor-Version': text('The API version of this response.', { enum: apiVersions }),
  'Idempotent-Replayed': text(
    'Present on a retry: the response is for the first request with this key.',
    { const: 'true' },
  ),
  Location: text('The path of the new object.', { pattern: '^/v1/' }),
  'Preference-Applied': text('The maximum delay of the response, in seconds.', {
    pattern: '^wait=\\d+$',
  }),
  'Retry-After': text('Seconds to wait before you retry.', { pattern: '^\\d+$' }),
} as const;

/** Returns the headers of a response: those of all responses, those of the route, and the given ones. */
function headersOf(route: Route, has: { location?: boolean; retryAfter?: boolean }): JsonObject {
  const names: (keyof typeof answerHeaders)[] = [
    ...(['Request-Id', 'Corridor-Version', 'RateLimit', 'RateLimit-Policy'] as const),
  ];
  if (route.method !== 'get') names.push('Idempotent-Replayed');
  if (has.location === true) names.push('Location');
  if (route.supportsPreferWait === true) names.push('Preference-Applied');
  if (has.retryAfter === true) names.push('Retry-After');
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** Describes a message as an endpoint receives it: Standard Webhooks 1.0. */
function webhookOf(type: WebhookType, version: ApiVersion): JsonObject {
  const header = (name: string, description: string) =>
    ({ name, in: 'header', required: true, ...text(description) }) as const;
  const isProbe = probeTypes.some((probe) => probe === type);
  const message = { $ref: reference(isProbe ? 'webhook_probe' : 'webhook_message') };
  const isChallenge = type === 'webhook_endpoint.challenge';
  const subject = isChallenge ? 'webhook_challenge' : type.replace(/\..*/, '');
  const data = { $ref: reference(subject) };
  const one = { allOf: [message, { properties: { type: { const: type }, data } }] };
  const schema = type === eventBatch ? { $ref: reference('webhook_batch') } : one;
  return {
    post: {
      operationId: type.replace('.', '_'),
      summary: `The webhook for ${type}.`,
      description: isProbe
        ? 'A POST to one endpoint, to verify or test it.'
        : 'A POST to each subscribed endpoint of the account.',
      security: [],
      parameters: [
        header('webhook-id', 'The id in the body: the same on every attempt.'),
        header('webhook-timestamp', 'When this attempt was made, in seconds since 1970.'),
        header(
          'webhook-signature',
          '`v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`; for endpoints with v1a, also `v1a,` and the ed25519 signature of the same text.',
        ),
      ],
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema,
            examples: { [type]: { summary: type, value: webhookExample(type, version) } },
          },
        },
      },
      responses: {
        '2XX': {
          description: isProbe
            ? 'Received. Respond to a challenge with its value alone. It is not retried.'
            : 'Received. After any other response, it is retried for three days.',
        },
      },
    },
  };
}
