import { gzipSync } from 'node:zlib';
import type { Route } from '../../src/api/route.js';

/** A reproducible source of randomness: the same seed generates the same requests. */
export type Chance = {
  /** An integer from 0 to below `limit`. */
  readonly below: (limit: number) => number;
  readonly pick: <T>(values: readonly [T, ...T[]]) => T;
  /** True with a probability of 1 in `times`. */
  readonly oneIn: (times: number) => boolean;
};

/** Mulberry32: its 32 bits of state are enough to generate requests. */
export function chanceOf(seed: number): Chance {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  const below = (limit: number) => next() % limit;
  return {
    below,
    pick: (values) => values[below(values.length)] ?? values[0],
    oneIn: (times) => below(times) === 0,
  };
}

/** A request that is invalid somewhere, with values that a caller or an attacker may send. */
export type HostileRequest = {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
};

const longText = 'x'.repeat(5_000);
const digits = '9'.repeat(5_000);
const prototypeNames = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
] as const;
const names: readonly [string, ...string[]] = [
  ...prototypeNames,
  '',
  'amount',
  'payouts',
  'metadata',
  '[',
  ']',
  '[]',
  'a[b',
  'a]b',
  '\0',
  '💸',
  longText,
  'quote',
  'length',
  '0',
  '-1',
  'id',
];
const values: readonly [unknown, ...unknown[]] = [
  null,
  true,
  '',
  ' ',
  '0',
  '-1',
  '1e400',
  '0x10',
  digits,
  1e308,
  -0,
  2 ** 53,
  1.5,
  [],
  {},
  [[]],
  [null],
  { a: { b: { c: {} } } },
  '\0',
  '\u202eabc',
  '\ud800',
  '💸'.repeat(100),
  longText,
  "'; drop table payouts; --",
  '%{jndi:ldap://a}',
  '../../etc/passwd',
  '<script>',
  'cor_test_',
  'NaN',
  'Infinity',
  '２００',
  'EUR\n',
];
const ids: readonly [string, ...string[]] = [
  'po_1',
  'po_',
  'qt_01ky',
  `bnf_${'z'.repeat(64)}`,
  `bnf_${'z'.repeat(5_000)}`,
  '%00',
  '%',
  '%zz',
  '%ff%fe',
  '%2e%2e%2f',
  '..%2f..',
  '__proto__',
  'constructor',
  '%f0%9f%92%b8',
  '0',
  '-1',
  '*',
  "';--",
  'a;b=c',
  'po_1%0d%0aX:%20y',
  'NULL',
  '%E2%80%AE',
  'we_1',
  'evt_1',
  'bat_1',
];
const methods: readonly [string, ...string[]] = [
  'PUT',
  'PATCH',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'PROPFIND',
  'PURGE',
  'SEARCH',
  'DELETE',
  'POST',
  'GET',
];
const types: readonly [string, ...string[]] = [
  'application/json',
  'application/x-www-form-urlencoded',
  'application/x-ndjson',
  'text/csv',
  'multipart/form-data; boundary=x',
  'text/plain',
  '',
  'application/json; charset=utf-16',
  'application/json;;;',
  'application/xml',
  '*/*',
  '\u00ff',
];
const junkHeaders: readonly (readonly [string, string])[] = [
  ['Idempotency-Key', ''],
  ['Idempotency-Key', 'k'.repeat(300)],
  ['Idempotency-Key', '"'],
  ['Idempotency-Key', '\u00fc\u00ff'],
  ['Corridor-Version', '2020-01-01'],
  ['Corridor-Version', '__proto__'],
  ['Prefer', 'wait=-1'],
  ['Prefer', 'wait=99999999999999999999'],
  ['Content-Encoding', 'br'],
  ['Content-Encoding', 'gzip, gzip'],
  ['Content-Encoding', 'gzip'],
  ['If-None-Match', '"'.repeat(500)],
  ['Range', 'bytes=0-1,2-3,-9'],
  ['Accept', '\u00ff/*;q=9'],
  ['X-Forwarded-For', '1.1.1.1, '.repeat(200)],
  ['X-HTTP-Method-Override', 'DELETE'],
  ['Cookie', 'a='.repeat(500)],
  ['Origin', 'null'],
];
/** 30 MB that compress to 30 KB. */
const bomb = gzipSync(Buffer.alloc(30 * 1024 * 1024, '['));
const nested = (open: string, close: string) =>
  Buffer.from(open.repeat(3_000) + close.repeat(3_000));

/**
 * Generates a hostile request to one of the routes. Its payouts name no beneficiary that could exist, so
 * that none of them reaches a workflow.
 */
export function hostileRequest(
  chance: Chance,
  routes: readonly [Route, ...Route[]],
  apiKey: string,
): HostileRequest {
  const route = chance.pick(routes);
  const method = chance.oneIn(8) ? chance.pick(methods) : route.method.toUpperCase();
  const type = chance.oneIn(3)
    ? chance.pick(types)
    : chance.pick(['application/json', 'application/x-www-form-urlencoded']);
  const { body, encoding } = hostileBody(chance, route, type);
  const hasBody = method === 'POST' || chance.oneIn(10);
  const headers: (readonly [string, string])[] = chance.oneIn(12)
    ? chance.pick([[], [['Authorization', 'Basic YTpi']], [['Authorization', `Bearer ${apiKey}x`]]])
    : [['Authorization', `Bearer ${apiKey}`]];
  if (type !== '' && hasBody) headers.push(['Content-Type', type]);
  if (encoding !== undefined && hasBody) headers.push(['Content-Encoding', encoding]);
  const junk = junkHeaders[chance.below(junkHeaders.length * 3)];
  if (junk !== undefined && !headers.some(([name]) => name === junk[0])) headers.push(junk);
  return {
    method,
    path: hostilePath(chance, route),
    headers,
    body: hasBody ? body : Buffer.alloc(0),
  };
}

function hostilePath(chance: Chance, route: Route): string {
  const path = route.path.replace(':id', chance.pick(ids));
  if (chance.oneIn(20))
    return chance.pick([
      `${path}/`,
      `/${path}`,
      path.toUpperCase(),
      `${path}/..`,
      '/rails/sandbox/callbacks',
      '/rails/%00/callbacks',
      '/',
      '*',
      '/openapi.json?version=x',
      '/docs/../v1',
      '/v1/\u00ff',
    ]);
  const query = () =>
    `${encoded(chance, asText(chance.pick(names)))}=${encoded(chance, asText(chance.pick(values)))}`;
  const known = Object.keys(route.params?.shape ?? {});
  const name = known[chance.below(known.length + 1)] ?? 'limit';
  const plain = `${name}=${encodeURIComponent(wellFormed(asText(chance.pick(values))))}`;
  return route.method === 'get' || chance.oneIn(15)
    ? `${path}?${chance.pick([plain, query(), `${plain}&${plain}`, `${query()}&${query()}`, `${name}[${chance.pick(['gte', '', '__proto__', '0'])}]=x`])}`
    : path;
}

/** A value as a form or CSV would contain it, although an object may override toString. */
function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Percent-encoded, sometimes incorrectly. */
function encoded(chance: Chance, text: string): string {
  return chance.oneIn(10)
    ? chance.pick(['%', '%ff', '%u0041', '%00', '%c0%af'])
    : encodeURIComponent(wellFormed(text.slice(0, 500)));
}

/** Replaces lone surrogates, at which encodeURIComponent throws, by a byte that is invalid UTF-8. */
function wellFormed(text: string): string {
  return text.replaceAll(/\p{Surrogate}/gu, '\u00ff');
}

function hostileBody(chance: Chance, route: Route, type: string) {
  if (chance.oneIn(200)) return { body: bomb, encoding: 'gzip' };
  if (chance.oneIn(100)) return { body: Buffer.alloc(300_000, 'a=b&'), encoding: undefined };
  if (chance.oneIn(60))
    return {
      body: chance.pick([
        nested('[', ']'),
        nested('{"a":', '}'),
        Buffer.from(`a${'[b]'.repeat(3_000)}=c`),
      ]),
      encoding: undefined,
    };
  const text = rendered(chance, hostileParams(chance, route), type);
  const bytes = chance.oneIn(4) ? broken(chance, Buffer.from(text)) : Buffer.from(text);
  return chance.oneIn(20)
    ? {
        body: chance.oneIn(2) ? gzipSync(bytes) : broken(chance, gzipSync(bytes)),
        encoding: 'gzip',
      }
    : { body: bytes, encoding: undefined };
}

/** The parameters of an example, with up to three of them replaced by hostile values. */
function hostileParams(chance: Chance, route: Route): Record<string, unknown> {
  const examples = Object.values(route.examples ?? {});
  const params: Record<string, unknown> = { ...examples[chance.below(examples.length || 1)] };
  for (let changes = 1 + chance.below(3); changes > 0; changes -= 1) {
    const known = Object.keys(params);
    const name = chance.oneIn(2) ? (known[chance.below(known.length)] ?? 'x') : chance.pick(names);
    // Defined as an own property, even for the name __proto__.
    Object.defineProperty(params, name, {
      value: chance.pick(values),
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  if ('beneficiary' in params)
    params['beneficiary'] = chance.pick(['Ada', '', '__proto__', 'qt_1', null]);
  if ('payouts' in params)
    params['payouts'] = chance.pick<unknown>([
      [],
      {},
      'x',
      [null],
      [{ beneficiary: 'Ada' }],
      Array.from({ length: 300 }, () => ({ [chance.pick(names)]: chance.pick(values) })),
    ]);
  return params;
}

function rendered(chance: Chance, params: Record<string, unknown>, type: string): string {
  if (type.startsWith('application/x-www-form-urlencoded')) {
    const pairs = Object.entries(params).map(
      ([name, value]) => `${encoded(chance, name)}=${encoded(chance, asText(value))}`,
    );
    return chance.oneIn(3)
      ? [...pairs, ...pairs].join('&')
      : pairs.join(chance.oneIn(20) ? ';' : '&');
  }
  const json = JSON.stringify(params);
  if (type === 'text/csv')
    return `${Object.keys(params).join()}\r\n${Object.values(params)
      .map((value) => `"${asText(value)}`)
      .join()}`;
  if (type === 'application/x-ndjson') return `${json}\n${json}\n\n${json}`;
  // JSON.stringify can write neither duplicate names nor numbers beyond a double.
  if (chance.oneIn(10)) return json.replace('{', '{"amount":1,"amount":2,');
  return chance.oneIn(10)
    ? json.replace(
        '{',
        `{"amount":${chance.pick([digits, '1e999999', '-0', '01', '1.', '+1', 'NaN'])},`,
      )
    : json;
}

/** Truncates the bytes or inserts others. */
function broken(chance: Chance, bytes: Buffer): Buffer {
  const at = chance.below(bytes.length + 1);
  const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)];
  return chance.pick([
    head,
    Buffer.concat([head, Buffer.from([0xff, 0xc0, 0x00]), tail]),
    Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), bytes]),
    Buffer.from(bytes.toString('utf8'), 'utf16le'),
    Buffer.concat([head, Buffer.from('\r\n\r\n'), tail]),
  ]);
}

/** The raw bytes of the request with some framing error, complete or truncated. */
export function framed(chance: Chance, request: HostileRequest): Buffer {
  const { method, path, headers, body } = request;
  const length = `${body.length}`;
  const framing: readonly [string, ...string[]] = [
    `Content-Length: ${length}`,
    `Content-Length: ${body.length + 10}`,
    `Content-Length: ${Math.max(0, body.length - 10)}`,
    `Content-Length: -1`,
    `Content-Length: ${digits}`,
    `Content-Length: ${length}\r\nContent-Length: ${body.length + 1}`,
    `Content-Length: ${length}\r\nTransfer-Encoding: chunked`,
    'Transfer-Encoding: chunked',
    'Transfer-Encoding: chunked, chunked',
    'Transfer-Encoding: gzip',
    'Transfer-Encoding : chunked',
    'Expect: 100-continue\r\nContent-Length: 5',
    'Expect: nothing',
    'Trailer: X',
  ];
  const line = chance.pick([
    `${method} ${path} HTTP/1.1`,
    `${method} ${path} HTTP/1.1`,
    `${method} ${path} HTTP/1.0`,
    `${method} ${path} HTTP/9.9`,
    `${method} ${path}`,
    `${method}  ${path} HTTP/1.1`,
    path,
    `CONNECT a:1 HTTP/1.1`,
    '\0\0\0',
    '\u0016\u0003\u0001',
    'PRI * HTTP/2.0',
  ]);
  const host = chance.pick([
    'Host: a',
    'Host: a',
    'Host: a',
    '',
    'Host: a\r\nHost: b',
    'Host:\u00ff',
  ]);
  const strange = chance.pick([
    'X: y',
    'Connection: Upgrade\r\nUpgrade: websocket',
    'X : y',
    ': y',
    'X\r\n y',
    'X: \0',
    'X: a\nY: b',
    `X: ${'y'.repeat(20_000)}`,
    'X: y\r\n'.repeat(150).trimEnd(),
    '\u00ff: y',
  ]);
  const lines = [
    line,
    host,
    ...headers.map(([name, value]) => `${name}: ${value}`),
    chance.pick(framing),
    strange,
  ];
  const head = Buffer.from(`${lines.filter((each) => each !== '').join('\r\n')}\r\n\r\n`, 'latin1');
  const whole = Buffer.concat([head, body]);
  return chance.oneIn(6) ? whole.subarray(0, chance.below(whole.length)) : whole;
}
