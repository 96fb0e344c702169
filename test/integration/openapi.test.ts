import { Validator } from '@seriousme/openapi-schema-validator';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { apiVersions, defaultApiVersion } from '../../src/contract/versions/index.js';
import { corridorCurrencies } from '../../src/domain/corridor.js';
import { webhookTypes } from '../../src/domain/event.js';
import { type Document, readDocument } from '../assertions/document.js';
import { startReceiver } from '../fakes/receiver.js';
import { textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let document: Document;

beforeAll(async () => {
  system = await startSystem();
  document = await readDocument(system.apiUrl, defaultApiVersion);
});
afterAll(() => system.stop());

const read = (path: string, headers: Record<string, string> = {}) =>
  fetch(system.apiUrl + path, { headers, signal: AbortSignal.timeout(10_000) });

/** The value at a JSON pointer. */
function at(value: unknown, pointer: string): unknown {
  const names = pointer.split('/').slice(1);
  return names.reduce<unknown>(
    (found, name) => z.looseObject({}).parse(found)[name.replaceAll('~1', '/')],
    value,
  );
}

/** All operations, such as `POST /v1/payouts/{id}/cancel`. */
function operations() {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      name: `${method.toUpperCase()} ${path}`,
      operation,
    })),
  );
}

describe('/openapi.json', () => {
  it.each(apiVersions)('is a valid OpenAPI 3.1 document of version %s', async (version) => {
    const response = await read(`/openapi.json?version=${version}`);
    expect(response.headers.get('corridor-version')).toBe(version);
    const text = await response.text();
    // The validator takes a text without line breaks for a file name.
    const result = await new Validator().validate(z.looseObject({}).parse(JSON.parse(text)));
    expect(result).toEqual({ valid: true });
    expect(JSON.parse(text)).toMatchObject({ openapi: '3.1.1', info: { version } });
  });

  it('has the requested version (the query wins over the header), or the default one', async () => {
    const [newest] = apiVersions;
    const versionOf = async (path: string, headers = {}) =>
      z
        .looseObject({ info: z.looseObject({ version: z.string() }) })
        .parse(await (await read(path, headers)).json()).info.version;
    expect(await versionOf('/openapi.json')).toBe(defaultApiVersion);
    expect(await versionOf('/openapi.json', { 'corridor-version': newest })).toBe(newest);
    const older = `/openapi.json?version=${defaultApiVersion}`;
    expect(await versionOf(older, { 'corridor-version': newest })).toBe(defaultApiVersion);
    const unknown = await read('/openapi.json?version=2020-01-01');
    expect(unknown.status).toBe(400);
    expect(await unknown.json()).toMatchObject({ code: 'api_version_unknown', param: 'version' });
  });

  it('uses only portable patterns, and describes its tags, license and servers', async () => {
    const text = JSON.stringify(document);
    const patterns = [...text.matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g)];
    expect(patterns.length).toBeGreaterThan(50);
    for (const [, pattern = ''] of patterns) {
      const source = z.string().parse(JSON.parse(pattern));
      expect(source).not.toMatch(/\(\?|\\[pP]\{|\\u\{/);
      expect(() => new RegExp(source)).not.toThrow();
    }
    const described = z.array(z.object({ name: z.string(), description: z.string().min(10) }));
    expect(described.parse(document['tags']).length).toBeGreaterThan(10);
    expect(document).toMatchObject({
      info: { license: { identifier: 'Apache-2.0' } },
      servers: [{ url: '/', description: expect.any(String) }],
    });
  });

  it.each(apiVersions)('describes no version but its own: %s', async (version) => {
    const document = await readDocument(system.apiUrl, version);
    expect(document).toMatchObject({
      components: { schemas: { api_version: { enum: [version] } } },
    });
    const exact = version === defaultApiVersion ? 'number' : 'string';
    for (const name of ['quote', 'payout', 'expanded_payout']) {
      const rate = z.looseObject({ properties: z.looseObject({ rate: z.unknown() }) });
      const { properties } = rate.parse(document.components.schemas[name]);
      expect(JSON.stringify(properties.rate)).toContain(`"type":"${exact}"`);
    }
    for (const type of webhookTypes) {
      const pointer = `/webhooks/${type}/post/requestBody/content/application~1json`;
      const { examples } = z
        .looseObject({ examples: z.record(z.string(), z.object({ value: z.unknown() })) })
        .parse(at(document, pointer));
      expect(document.faultOf(`${pointer}/schema`, examples[type]?.value)).toBeUndefined();
    }
  });

  it('serializes lists and objects in a query as the server parses them', () => {
    const styleOf = (path: string) =>
      Object.fromEntries(
        (document.paths[path]?.['get']?.parameters ?? []).flatMap((one) =>
          'name' in one ? [[one.name, one]] : [],
        ),
      );
    const object = { style: 'deepObject', explode: true, schema: { type: 'object' } };
    expect(styleOf('/v1/payouts')).toMatchObject({
      limit: { schema: { type: 'integer', minimum: 1, maximum: 100, default: 20 } },
      created: object,
      metadata: object,
      expand: { schema: { type: 'array' } },
    });
    expect(styleOf('/v1/beneficiary_requirements')).toMatchObject({
      country: { required: true },
      currency: { required: false },
    });
    const lines = document.paths['/v1/batches']?.['post']?.parameters;
    const inQuery = { in: 'query', required: false };
    expect(lines).toMatchObject([
      { ...inQuery, name: 'mode', schema: { enum: ['best_effort', 'all_or_nothing'] } },
      { ...inQuery, name: 'validate_only', schema: { type: 'boolean' } },
      { $ref: expect.any(String) },
      { $ref: expect.any(String) },
    ]);
  });

  it('has one problem type, a type for each body, and no required property with a default', () => {
    const reference = z.object({ schema: z.object({ $ref: z.string() }) });
    const seen = new Set<string>();
    for (const { operation } of operations()) {
      for (const [status, response] of Object.entries(operation.responses)) {
        if (status < '400') continue;
        const { schema } = reference.parse(response.content['application/problem+json']);
        expect(schema.$ref).toBe('#/components/schemas/problem');
        expect(response['x-error-codes']).not.toEqual([]);
      }
      const bodies = Object.values(operation.requestBody?.content ?? {}).slice(0, 2);
      for (const { schema } of bodies.map((body) => reference.parse(body))) {
        expect(seen.has(schema.$ref)).toBe(false);
        seen.add(schema.$ref);
        expect(JSON.stringify(at(document, schema.$ref.slice(1)))).not.toContain('"default"');
      }
    }
    expect(seen.size).toBeGreaterThan(12);
    const currency = z.object({ enum: z.array(z.string()) });
    const { enum: paid } = currency.parse(at(document, '/components/schemas/currency_param'));
    expect(paid).toEqual(corridorCurrencies());
  });

  it('shows the default of a number as a number, though a form sends a text', () => {
    for (const body of ['params', 'form']) {
      const rotation = `/components/schemas/rotateWebhookEndpointSecret_${body}`;
      expect(at(document, `${rotation}/properties/overlap_hours`)).toMatchObject({
        description: expect.stringMatching(/ Default: 24\.$/),
      });
    }
  });

  it('is not sent again to a client that has it cached', async () => {
    const first = await read('/openapi.json');
    expect(first.headers.get('cache-control')).toBe('public, no-cache');
    // Not with fetch, which would add its own Cache-Control.
    const again = await request(`${system.apiUrl}/openapi.json`, {
      headers: { 'if-none-match': first.headers.get('etag') ?? '' },
    });
    expect(again.statusCode).toBe(304);
    expect(await again.body.text()).toBe('');
  });

  it('lists every route of the router, and no other', () => {
    const layer = z.object({ path: z.string(), methods: z.array(z.string()) });
    const router = z.object({ router: z.object({ stack: z.array(layer) }) });
    const routed = system.app.middleware
      .flatMap((middleware) => ('router' in middleware ? [{ router: middleware.router }] : []))
      .flatMap((found) => router.parse(found).router.stack)
      .filter(({ path }) => path.startsWith('/v1/'))
      // A router answers HEAD wherever it answers GET.
      .flatMap(({ path, methods }) =>
        methods.filter((method) => method !== 'HEAD').map((method) => `${method} ${path}`),
      );
    const named = operations().map(({ name }) => name.replaceAll(/\{(\w+)\}/g, ':$1'));
    expect(named.sort()).toEqual(routed.sort());
    expect(named.length).toBeGreaterThan(15);
  });

  it('lists only routes that exist', async () => {
    for (const { name } of operations()) {
      const answer = await system.client(name.replace('{id}', 'none_1'), { json: undefined });
      expect(answer.body['code']).not.toBe('route_not_found');
      expect(answer.body['code']).not.toBe('method_not_allowed');
    }
  });

  it('gives every operation, including webhooks, a unique name', () => {
    const names = operations().map(({ operation }) => operation.operationId);
    expect(new Set(names).size).toBe(names.length);
    expect(Object.keys(document.webhooks)).toContain('payout.settled');
  });
});

const quoted = {
  json: { source_currency: 'USD', destination_currency: 'EUR', amount: 5_000 },
} as const;

/** Replaces the IDs in an example with those of existing objects. Each payout uses up a quote. */
async function withRealIds(example: unknown): Promise<unknown> {
  const payee = await system.client('POST /v1/beneficiaries', { json: beneficiary });
  const quote = await system.client('POST /v1/quotes', quoted);
  const text = JSON.stringify(example)
    .replaceAll(/bnf_\w+/g, textOf(payee, 'id'))
    .replaceAll(/qt_\w+/g, textOf(quote, 'id'));
  return JSON.parse(text);
}

/** Replaces the ID in the request, if any, with that of an object made for it. */
async function withNewObject(name: string): Promise<string> {
  if (name.includes('/events/')) {
    const { body } = await system.client('GET /v1/events?limit=1');
    const [id = ''] = JSON.stringify(body).match(/evt_\w+/) ?? [];
    return name.replace('{id}', id);
  }
  if (!name.includes('webhook_endpoints')) {
    return String(await withRealIds(name.replace('{id}', 'bnf_1')));
  }
  const json = { url: 'http://127.0.0.1:9/hooks', events: ['payout.failed'] };
  const made = await system.client('POST /v1/webhook_endpoints', { json });
  return name.replace('{id}', textOf(made, 'id'));
}

/** Encodes nested names in brackets, as the document describes for forms. */
function formOf(value: unknown, name = ''): Record<string, string> {
  if (typeof value !== 'object' || value === null) return { [name]: String(value) };
  const named = (key: string) => (name === '' ? key : `${name}[${key}]`);
  return Object.assign({}, ...Object.entries(value).map(([key, of]) => formOf(of, named(key))));
}

describe('a webhook', () => {
  it.each(apiVersions)('matches the document of version %s', async (version) => {
    const receiver = await startReceiver();
    await system.client('POST /v1/account', { json: { api_version: version } });
    const endpoint = await system.client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['*'] },
    });
    const json = await withRealIds({ quote: 'qt_1', beneficiary: 'bnf_1' });
    await system.client('POST /v1/batches', {
      json: { payouts: [await withRealIds({ ...quoted.json, beneficiary: 'bnf_1' })] },
    });
    await system.client('POST /v1/payouts', { json });
    const announced = await readDocument(system.apiUrl, version);
    for (const type of ['payout.sent', 'payout.settled', 'batch.completed']) {
      const webhook = await receiver.next(({ body }) => body.includes(`"type":"${type}"`));
      const body = '/post/requestBody/content/application~1json/schema';
      const fault = announced.faultOf(`/webhooks/${type}${body}`, JSON.parse(webhook.body));
      expect(fault, webhook.body).toBeUndefined();
      const names = ['webhook-id', 'webhook-timestamp', 'webhook-signature'];
      for (const name of names) expect(webhook.headers).toHaveProperty(name);
    }
    await system.client(`DELETE /v1/webhook_endpoints/${textOf(endpoint, 'id')}`);
    await receiver.close();
  });
});

describe('every example of the document', () => {
  it('gets the documented response, sent as JSON or as a form', async () => {
    const sent: string[] = [];
    for (const { name, operation } of operations()) {
      const media = operation.requestBody?.content['application/json'];
      for (const [title, { value }] of Object.entries(media?.examples ?? {})) {
        const json = await withRealIds(value);
        const asJson = await system.client(await withNewObject(name), { json });
        const form = formOf(await withRealIds(value));
        const asForm = await system.client(await withNewObject(name), { form });
        // The client has checked both answers against the document.
        const request = `${name}, ${title}: ${JSON.stringify([asJson.body, asForm.body])}`;
        expect(
          [asJson.status, asForm.status].every((status) => status < 300),
          request,
        ).toBe(true);
        sent.push(name);
      }
    }
    const writing = operations().filter(({ operation }) => operation.requestBody !== undefined);
    expect([...new Set(sent)]).toEqual(writing.map(({ name }) => name));
  });
});
