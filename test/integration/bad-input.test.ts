import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createApiKey, hashOfKey, insertApiKey, revokeApiKey } from '../../src/db/apiKeys.js';
import { type ApiAnswer, createClient, type RequestOptions } from '../fixtures/client.js';
import { american, beneficiary as german } from '../fixtures/requestPayout.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  // A malformed request never reaches a workflow.
  system = await startSystem({ startsWorker: false });
});
afterAll(() => system.stop());

const member = z.object({
  code: z.string(),
  param: z.string().optional(),
  expected: z.string().optional(),
  received: z.string().optional(),
  detail: z.string().optional(),
});
const problem = member.extend({
  type: z.string(),
  title: z.string(),
  status: z.number(),
  detail: z.string(),
  errors: z.array(member).min(1),
  request_id: z.string(),
});

/** The number of rows in every table that a request may write to. */
async function counts() {
  const [row] = await system.database<{ keys: number }[]>`
    select (select count(*)::int from payouts) as payouts,
           (select count(*)::int from quotes) as quotes,
           (select count(*)::int from beneficiaries) as beneficiaries,
           (select count(*)::int from webhook_endpoints) as endpoints,
           (select count(*)::int from ledger_entries) as entries,
           (select count(*)::int from idempotency_keys) as keys`;
  return row;
}

type Expected = {
  readonly status: number;
  readonly code: string;
  readonly param?: string;
  readonly detail?: string;
};

function checkProblem(answer: ApiAnswer, wanted: Expected) {
  expect(answer.headers.get('content-type')).toMatch(/^application\/problem\+json(;|$)/);
  const refusal = problem.parse(answer.body);
  expect({ status: answer.status, code: refusal.code, param: refusal.param }).toEqual({
    status: wanted.status,
    code: wanted.code,
    param: wanted.param,
  });
  expect(refusal.status).toBe(wanted.status);
  // An unknown ID in a path is the only refusal that needs no further explanation.
  for (const { code, expected } of [refusal, ...refusal.errors]) {
    if (code !== 'not_found') expect(expected).toMatch(/\S/);
  }
  expect(refusal.request_id).toBe(answer.headers.get('request-id'));
  if (wanted.detail !== undefined) expect(refusal.detail).toContain(wanted.detail);
  return refusal;
}

/** Sends a bad request, checks its answer, and verifies that it stored nothing. */
async function refuses(request: string, options: RequestOptions, wanted: Expected) {
  const before = await counts();
  const answer = await system.client(request, {
    idempotencyKey: `bad-${crypto.randomUUID()}`,
    ...options,
  });
  const refusal = checkProblem(answer, wanted);
  // A request that was understood and refused binds its key; nothing else is ever stored.
  const bound = wanted.status === 422 ? 1 : 0;
  expect(await counts()).toEqual({ ...before, keys: (before?.keys ?? 0) + bound });
  return { answer, refusal };
}

const quote = { source_currency: 'USD', destination_currency: 'EUR', amount: '125000' };
const live = { source_currency: 'USD', amount: '125000', beneficiary: 'bnf_1' };

const without = (params: Record<string, string>, name: string) =>
  Object.fromEntries(Object.entries(params).filter(([key]) => key !== name));

type Case = readonly [
  name: string,
  request: string,
  params: Record<string, string>,
  wanted: Expected,
];

const invalid = (param: string): Expected => ({ status: 400, code: 'parameter_invalid', param });
const missing = (param: string): Expected => ({ status: 400, code: 'parameter_missing', param });

const badAmounts = ['0', '-1', '+1', '1.5', '1.0', '1e3', '01', 'abc', '', '1000000000000000000'];

const cases: readonly Case[] = [
  ...badAmounts.map(
    (amount): Case => [
      `amount "${amount}"`,
      'POST /v1/quotes',
      { ...quote, amount },
      invalid('amount'),
    ],
  ),
  ...['XXX', 'eur', 'EURO', ''].map(
    (currency): Case => [
      `currency "${currency}"`,
      'POST /v1/quotes',
      { ...quote, destination_currency: currency },
      invalid('destination_currency'),
    ],
  ),
  ...Object.keys(quote).map(
    (name): Case => [
      `a quote without ${name}`,
      'POST /v1/quotes',
      without(quote, name),
      missing(name),
    ],
  ),
  [
    'a fixed side there is not',
    'POST /v1/quotes',
    { ...quote, fixed_side: 'both' },
    invalid('fixed_side'),
  ],
  [
    'an unknown parameter, with the nearest name',
    'POST /v1/quotes',
    { ...quote, destination_curency: 'EUR' },
    {
      status: 400,
      code: 'parameter_unknown',
      param: 'destination_curency',
      detail: 'Did you mean destination_currency?',
    },
  ],
  ...(
    [
      ['POST /v1/quotes', { ...quote, fixed_side: 'sorce' }, 'fixed_side', 'source'],
      ['POST /v1/quotes', { ...quote, source_currency: 'usd' }, 'source_currency', 'USD'],
    ] as const
  ).map(
    ([request, params, param, nearest]): Case => [
      `a slip of the finger in ${param}, with ${nearest} as the nearest value`,
      request,
      params,
      { ...invalid(param), detail: `Did you mean ${nearest}?` },
    ],
  ),
  [
    'a payout without beneficiary',
    'POST /v1/payouts',
    without(live, 'beneficiary'),
    missing('beneficiary'),
  ],
  [
    'a beneficiary that is no id',
    'POST /v1/payouts',
    { ...live, beneficiary: 'Ada' },
    invalid('beneficiary'),
  ],
  [
    'a reference of 141 characters',
    'POST /v1/payouts',
    { ...live, reference: 'x'.repeat(141) },
    invalid('reference'),
  ],
  [
    'both a quote and an amount',
    'POST /v1/payouts',
    { quote: 'qt_1', amount: '125000', beneficiary: 'bnf_1' },
    { status: 400, code: 'parameters_exclusive', param: 'amount' },
  ],
  [
    'neither a quote nor an amount',
    'POST /v1/payouts',
    { source_currency: 'USD', beneficiary: 'bnf_1' },
    missing('amount'),
  ],
  [
    'a beneficiary without IBAN',
    'POST /v1/beneficiaries',
    without(german, 'iban'),
    missing('iban'),
  ],
  [
    'an IBAN with a wrong check digit',
    'POST /v1/beneficiaries',
    { ...german, iban: 'DE88370400440532013000' },
    { status: 422, code: 'beneficiary_invalid', param: 'iban', detail: 'check digits' },
  ],
  [
    'an IBAN whose last characters are halves of others, of which the refusal shows four',
    'POST /v1/beneficiaries',
    { ...german, iban: '\u{20F1}\u{131BF}\u{10B06E}\u{1F644}\u{8834D}\u0114' },
    { status: 422, code: 'beneficiary_invalid', param: 'iban' },
  ],
  [
    'a routing number with a wrong check digit',
    'POST /v1/beneficiaries',
    { ...american, routing_number: '021000022' },
    { status: 422, code: 'beneficiary_invalid', param: 'routing_number' },
  ],
  [
    'an API version there is not',
    'POST /v1/account',
    { api_version: '2020-01-01' },
    invalid('api_version'),
  ],
  ['funds of nothing', 'POST /v1/test/fund', { currency: 'USD', amount: '0' }, invalid('amount')],
];

describe.each(['form', 'json'] as const)('as %s, a request is refused for', (style) => {
  it.each(cases)('%s', async (_name, request, params, wanted) => {
    await refuses(request, style === 'form' ? { form: params } : { json: params }, wanted);
  });

  it('all its wrong parameters in one answer', async () => {
    const params = { source_currency: 'usd', amount: '1.5', fixed_side: 'middle', colour: 'red' };
    const sent = style === 'form' ? { form: params } : { json: params };
    const { refusal } = await refuses('POST /v1/quotes', sent, invalid('source_currency'));
    const errors = refusal.errors.map(({ code, param }) => `${code} ${param}`);
    expect(errors.sort()).toEqual([
      'parameter_invalid amount',
      'parameter_invalid fixed_side',
      'parameter_invalid source_currency',
      'parameter_missing destination_currency',
      'parameter_unknown colour',
    ]);
  });

  it.each([
    [
      'POST /v1/payouts',
      { quote: 'qt_1', amount: '1.5', fixed_side: 'source', referense: 'July' },
      [
        'parameter_invalid amount',
        'parameter_missing beneficiary',
        'parameter_unknown referense',
        'parameters_exclusive amount',
        'parameters_exclusive fixed_side',
      ],
    ],
    [
      'POST /v1/payouts',
      { beneficiary: 'Ada', curency: 'USD' },
      [
        'parameter_invalid beneficiary',
        'parameter_missing amount',
        'parameter_missing source_currency',
        'parameter_unknown curency',
      ],
    ],
    [
      'POST /v1/beneficiaries',
      {
        type: 'person',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE0',
        nam: 'Ada',
        bic: 'x'.repeat(141),
      },
      [
        'beneficiary_invalid iban',
        'beneficiary_invalid type',
        'parameter_invalid bic',
        'parameter_missing name',
        'parameter_unknown nam',
      ],
    ],
  ])('all errors of %s, whichever rule finds them: %j', async (request, params, wanted) => {
    const sent = style === 'form' ? { form: params } : { json: params };
    const answer = await system.client(request, sent);
    expect(answer.status).toBe(400);
    const { errors } = problem.parse(answer.body);
    expect(errors.map(({ code, param }) => `${code} ${param}`).sort()).toEqual(wanted);
  });

  it('both account fields that are wrong, without showing them in full', async () => {
    const params = { ...american, account_number: '12345678901234567890', routing_number: '1' };
    const sent = style === 'form' ? { form: params } : { json: params };
    const { answer, refusal } = await refuses('POST /v1/beneficiaries', sent, {
      status: 422,
      code: 'beneficiary_invalid',
      param: 'account_number',
    });
    expect(refusal.errors.map(({ param }) => param)).toEqual(['account_number', 'routing_number']);
    expect(JSON.stringify(answer.body)).not.toContain(params.account_number);
  });

  it.each(['ftp://example.com/hooks', 'file:///etc/passwd', 'example.com'])(
    'a webhook URL with an unsupported scheme: %s',
    async (url) => {
      const sent =
        style === 'form'
          ? { form: { url, 'events[]': 'payout.settled' } }
          : { json: { url, events: ['payout.settled'] } };
      await refuses('POST /v1/webhook_endpoints', sent, {
        status: 422,
        code: 'webhook_url_refused',
        param: 'url',
      });
    },
  );

  it('metadata of more than 8 KiB, but not of exactly 8 KiB, and control characters in its keys', async () => {
    const full = Object.fromEntries(
      Array.from({ length: 17 }, (_, i) => [`n${i + 10}`, 'x'.repeat(i === 16 ? 20 : 500)]),
    );
    const bytes = Buffer.byteLength(JSON.stringify(full));
    const grown = (more: number) => ({ ...full, n26: full['n26'] + 'x'.repeat(more) });
    const send = (metadata: Record<string, string>) => {
      const fields = Object.entries(metadata).map(([name, value]) => [`metadata[${name}]`, value]);
      return style === 'form'
        ? { form: { ...live, ...Object.fromEntries(fields) } }
        : { json: { ...live, metadata } };
    };
    const room = 8 * 1024 - bytes;
    await refuses('POST /v1/payouts', send(grown(room + 1)), invalid('metadata'));
    const accepted = await system.client('POST /v1/payouts', send(grown(room)));
    expect([201, 202]).toContain(accepted.status);
    // Operators' terminals would obey them.
    await refuses('POST /v1/payouts', send({ 'a\u009bb': 'x' }), invalid('metadata[a\u009bb]'));
  });

  it('an unknown event type, named by its place in the list', async () => {
    const url = 'https://example.com/hooks';
    const sent =
      style === 'form'
        ? { form: { url, 'events[0]': 'payout.settled', 'events[1]': 'payout.setled' } }
        : { json: { url, events: ['payout.settled', 'payout.setled'] } };
    await refuses('POST /v1/webhook_endpoints', sent, {
      ...invalid('events[1]'),
      detail: 'Did you mean payout.settled?',
    });
  });
});

/** Each has a hundred wrong parameters, and then one more fault. */
const manyFaults: readonly (readonly [name: string, request: string, options: RequestOptions])[] = [
  [
    'CSV with too many values',
    'POST /v1/batches',
    { raw: { contentType: 'text/csv', body: csvOf(1_200, 'x') + csvRow('\0') } },
  ],
  [
    'JSON that breaks off',
    'POST /v1/payouts',
    { raw: { contentType: 'application/json', body: `{${hundred((i) => `"n${i}":"\\u0000"`)}` } },
  ],
  [
    'a beneficiary of unknown parameters alone',
    'POST /v1/beneficiaries',
    { raw: { contentType: 'application/json', body: `{${hundred((i) => `"n${i}":"x"`)}}` } },
  ],
];

function hundred(textOf: (index: number) => string): string {
  return Array.from({ length: 100 }, (_, index) => textOf(index)).join(',');
}

function csvRow(cell: string): string {
  return `${hundred(() => cell)}\n`;
}

function csvOf(rows: number, cell: string): string {
  return `${hundred((index) => `metadata[c${index}]`)}\n${csvRow(cell).repeat(rows)}`;
}

it.each(manyFaults)('%s: no more errors are listed than is documented', async (...sent) => {
  const [, request, options] = sent;
  const answer = await system.client(request, options);
  expect(answer.status).toBe(400);
  expect(problem.parse(answer.body).errors).toHaveLength(100);
});

describe('JSON is refused for', () => {
  it.each(['1.0', '1e3', '0', '-1', '1.5', '1000000000000000000', 'true', 'null', '[1]', '{}'])(
    'the amount %s',
    async (amount) => {
      const body = `{"source_currency":"USD","destination_currency":"EUR","amount":${amount}}`;
      const raw = { body, contentType: 'application/json' };
      await refuses('POST /v1/quotes', { raw }, invalid('amount'));
    },
  );

  it('a name that comes twice', async () => {
    const body = '{"source_currency":"USD","destination_currency":"EUR","amount":1,"amount":2}';
    const raw = { body, contentType: 'application/json' };
    await refuses('POST /v1/quotes', { raw }, invalid('amount'));
  });
});

describe('a body is refused that', () => {
  const malformed: Expected = { status: 400, code: 'body_malformed' };
  const unsupported: Expected = {
    status: 415,
    code: 'content_type_unsupported',
    param: 'Content-Type',
  };
  const json = 'application/json';
  const form = 'application/x-www-form-urlencoded';
  const good = JSON.stringify(quote);
  const bodies: readonly [string, RequestOptions['raw'], Expected][] = [
    ['is broken JSON', { body: '{"amount": 1', contentType: json }, malformed],
    ['is JSON without an object', { body: '[1]', contentType: json }, malformed],
    ['is a form sent as JSON', { body: 'amount=1', contentType: json }, malformed],
    ['is text', { body: good, contentType: 'text/plain' }, unsupported],
    ['is multipart', { body: good, contentType: 'multipart/form-data; boundary=x' }, unsupported],
    ['is in Latin-1', { body: good, contentType: `${json}; charset=iso-8859-1` }, unsupported],
    ['has no content type', { body: new TextEncoder().encode(good) }, unsupported],
    [
      'has a malformed content type',
      { body: good, contentType: `${json}, ${json}` },
      { ...unsupported, detail: `not "${json}, ${json}"` },
    ],
    [
      'is JSON and not UTF-8',
      {
        body: Uint8Array.from([...Buffer.from('{"amount":"'), 0xff, 0x22, 0x7d]),
        contentType: json,
      },
      malformed,
    ],
    ['is a form and not UTF-8', { body: 'amount=%FF', contentType: form }, invalid('amount')],
    [
      'is a form with a broken escape',
      { body: 'amount=%G1', contentType: form },
      invalid('amount'),
    ],
    [
      'is too large',
      { body: `reference=${'x'.repeat(300_000)}`, contentType: form },
      { status: 413, code: 'body_too_large' },
    ],
  ];
  it.each(bodies)('%s', async (_name, raw, wanted) => {
    await refuses('POST /v1/quotes', raw === undefined ? {} : { raw }, wanted);
  });

  it('says it is compressed and is not', async () => {
    const raw = { body: good, contentType: json };
    const wanted = { ...malformed, detail: 'valid gzip' };
    await refuses('POST /v1/quotes', { raw, headers: { 'content-encoding': 'gzip' } }, wanted);
  });

  it.each(['GZIP', 'Identity'])(
    'has an unknown encoding, but not if %s is merely in capitals',
    async (encoding) => {
      const body = encoding === 'GZIP' ? gzipSync(good) : good;
      const headers = { 'content-encoding': encoding };
      const answer = await system.client('POST /v1/quotes', {
        raw: { body, contentType: json },
        headers,
      });
      expect(answer.status).toBe(201);
    },
  );

  it('is compressed, truncated and too large, even if decompression fails late', async () => {
    const headers = { 'content-encoding': 'gzip' };
    for (let cut = 1; cut < 200; cut += 1) {
      const packed = gzipSync(Buffer.alloc(64 * 1024 + 500 * cut, 'a'));
      const raw = { body: packed.subarray(0, -(cut % 20) - 1), contentType: json };
      const { status } = await system.client('POST /v1/quotes', { raw, headers });
      expect([400, 413]).toContain(status);
    }
    await refuses('POST /v1/quotes', { form: {} }, missing('source_currency'));
  });

  it('comes in chunks without a content type', async () => {
    const before = await counts();
    const headers = { authorization: `Bearer ${system.account.apiKey}` };
    const sending = httpRequest(`${system.apiUrl}/v1/quotes`, { method: 'POST', headers });
    sending.write(good.slice(0, 10));
    sending.end(good.slice(10));
    const [response] = await once(sending, 'response');
    const body = z.record(z.string(), z.unknown()).parse(JSON.parse(await text(response)));
    const received = new Headers(z.record(z.string(), z.string()).parse(response.headers));
    checkProblem({ status: response.statusCode, headers: received, body }, unsupported);
    expect(await counts()).toEqual(before);
  });
});

describe('a key is refused that', () => {
  const wanted = { status: 401, code: 'api_key_invalid', param: 'Authorization' };

  async function refusesKey(authorization: string): Promise<void> {
    const { answer } = await refuses(
      'POST /v1/quotes',
      { form: quote, headers: { authorization } },
      wanted,
    );
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    expect(JSON.stringify(answer.body)).not.toContain(authorization.split(' ').at(-1));
  }

  it('is not there', async () => {
    const before = await counts();
    const response = await fetch(`${system.apiUrl}/v1/quotes`, {
      method: 'POST',
      body: new URLSearchParams(quote),
    });
    const { status, headers } = response;
    const body = z.record(z.string(), z.unknown()).parse(await response.json());
    checkProblem({ status, headers, body }, { ...wanted, code: 'api_key_missing' });
    expect(headers.get('www-authenticate')).toBe('Bearer');
    expect(await counts()).toEqual(before);
  });

  it('is malformed', () => refusesKey('Bearer cor_test_short'));

  it('comes by another scheme', () =>
    refusesKey(`Basic ${Buffer.from(`${system.account.apiKey}:`).toString('base64')}`));

  it('has a wrong checksum, even if it is stored', async () => {
    const good = createApiKey('test');
    const apiKey = `${good.slice(0, -1)}${good.endsWith('0') ? '1' : '0'}`;
    const accountId = system.account.account.id;
    const key = { accountId, keyHash: hashOfKey(apiKey), lastFour: apiKey.slice(-4) };
    await insertApiKey(system.database, key);
    await refusesKey(`Bearer ${apiKey}`);
  });

  it('is unknown, though its checksum is right', () =>
    refusesKey(`Bearer ${createApiKey('test')}`));

  it('was revoked', async () => {
    const apiKey = createApiKey('test');
    const accountId = system.account.account.id;
    const key = { accountId, keyHash: hashOfKey(apiKey), lastFour: apiKey.slice(-4) };
    const { id } = await insertApiKey(system.database, key);
    const before = await createClient(system.apiUrl, apiKey)('GET /v1/balances');
    expect(before.status).toBe(200);
    expect(await revokeApiKey(system.database, id)).toBe(true);
    await refusesKey(`Bearer ${apiKey}`);
  });
});

describe('a request is refused whose', () => {
  const overlong = 'k'.repeat(256);
  it.each(['', '""', overlong, 'two words', 'schlüssel', `"${overlong}"`])(
    'Idempotency-Key is "%s"',
    async (idempotencyKey) => {
      const wanted = { status: 400, code: 'header_invalid', param: 'Idempotency-Key' };
      await refuses('POST /v1/quotes', { form: quote, idempotencyKey }, wanted);
    },
  );

  it('Corridor-Version is unknown', async () => {
    const { refusal } = await refuses(
      'POST /v1/quotes',
      { form: quote, headers: { 'corridor-version': '2020-01-01' } },
      { status: 400, code: 'api_version_unknown', param: 'Corridor-Version' },
    );
    expect(refusal.expected).toContain('2026-06-01');
    expect(refusal.received).toBe('2020-01-01');
  });

  it('Corridor-Version is empty', async () => {
    const wanted = { status: 400, code: 'api_version_unknown', param: 'Corridor-Version' };
    await refuses('POST /v1/quotes', { form: quote, headers: { 'corridor-version': '' } }, wanted);
    await refuses('GET /openapi.json', { headers: { 'corridor-version': '' } }, wanted);
  });

  it.each(['POST /v1/quote', 'GET /v1/', 'GET /', 'POST /v2/quotes'])(
    'route is %s',
    async (request) => {
      await refuses(request, {}, { status: 404, code: 'route_not_found' });
    },
  );

  it.each([
    ['PUT /v1/quotes', 'POST'],
    ['PATCH /v1/payouts/po_1', 'GET, HEAD'],
    ['DELETE /v1/payouts', 'GET, HEAD, POST'],
  ])('method is not allowed for the route: %s', async (request, allowed) => {
    const wanted = { status: 405, code: 'method_not_allowed' };
    const { answer } = await refuses(request, {}, wanted);
    expect(answer.headers.get('allow')).toBe(allowed);
  });

  it.each(['qt_1', 'nothing', '%00', '%ff', '%f0%9f%92%b8', 'a'.repeat(2_000)])(
    'object does not exist: %s',
    async (id) => {
      await refuses(`GET /v1/quotes/${id}`, {}, { status: 404, code: 'not_found' });
    },
  );

  it.each(['0', '101', 'ten', '1e1'])('page of events is limited to %s', async (limit) => {
    await refuses(`GET /v1/events?limit=${limit}`, {}, invalid('limit'));
  });

  it.each(['GET /V1/balances', 'POST /v1/batches/', 'POST /v1/Payouts'])(
    'path is misspelled: %s',
    async (request) => {
      await refuses(request, {}, { status: 404, code: 'route_not_found' });
    },
  );

  it('query contains parameters that belong in its body', async () => {
    const wanted = { status: 400, code: 'parameter_unknown', param: 'fixed_side' };
    await refuses('POST /v1/quotes?fixed_side=destination', { form: quote }, wanted);
  });

  it('account number is a JSON number, without repeating the number', async () => {
    const json = { ...american, account_number: 123_456_789_012 };
    const { refusal } = await refuses(
      'POST /v1/beneficiaries',
      { json },
      invalid('account_number'),
    );
    expect(refusal.detail).toContain('Send it as a string.');
    expect(JSON.stringify(refusal)).not.toContain('123456789012');
  });

  it.each(['br', 'deflate', 'zstd'])('body is encoded as %s', async (encoding) => {
    const headers = { 'content-encoding': encoding };
    const code = 'content_type_unsupported';
    const wanted = { status: 415, code, param: 'Content-Encoding' };
    await refuses('POST /v1/quotes', { form: quote, headers }, wanted);
  });

  it.each(['a\r\nX: y', 'a\u2028b', 'a\u2029b', 'bell \u0007', '\u202eturned', '   '])(
    'reference would change the bank message: %j',
    async (reference) => {
      const payout = { beneficiary: 'bnf_1', source_currency: 'USD', amount: '100', reference };
      await refuses('POST /v1/payouts', { json: payout }, invalid('reference'));
    },
  );

  it('reference is a character too long, and a character may have two halves', async () => {
    const payout = { beneficiary: 'bnf_1', source_currency: 'USD', amount: '100' };
    const json = { ...payout, reference: '\u{1f600}'.repeat(141) };
    const { refusal } = await refuses('POST /v1/payouts', { json }, invalid('reference'));
    expect(refusal.detail).toContain('It has 141 characters.');
  });

  it('events are named twice', async () => {
    const json = { url: 'http://127.0.0.1:9/', events: ['payout.sent', 'payout.sent'] };
    await refuses('POST /v1/webhook_endpoints', { json }, invalid('events'));
  });
});

it('a body that does not match its headers does not delay the next request', async () => {
  const { apiUrl, account } = system;
  const { hostname, port } = new URL(apiUrl);
  const junk = Buffer.alloc(200_000, 'A');
  const head = (line: string) =>
    `${line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${account.apiKey}\r\n`;
  const socket = connect(Number(port), hostname);
  socket.write(
    `${head('POST /v1/batches')}Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: ${junk.length}\r\n\r\n`,
  );
  socket.write(junk);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  // The answer announces that the connection closes, and it does: no client waits for a second answer.
  await once(socket, 'close');
  const answer = Buffer.concat(chunks).toString('utf8');
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(answer.toLowerCase()).toContain('connection: close');
});
