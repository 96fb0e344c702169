import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import {
  connect,
  createServer as createNetServer,
  type Server as NetServer,
  type Socket,
} from 'node:net';
import { gunzipSync } from 'node:zlib';
import { pino } from 'pino';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { routes } from '../../src/api/app.js';
import { trustProxies } from '../../src/api/clientAddress.js';
import { trusted } from '../../src/api/connections.js';
import { createHttpServer, httpLimits } from '../../src/api/httpServer.js';
import { hashOfKey } from '../../src/db/apiKeys.js';
import { eventually } from '../assertions/eventually.js';
import { createClient } from '../fixtures/client.js';
import { openWire, type Wire, type WireAnswer } from '../fixtures/wire.js';
import { type ApiProcess, startApiProcess } from '../servers/apiProcess.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

let data: TestDatabase;
let api: ApiProcess;
let apiKey: string;

beforeAll(async () => {
  data = await createTestDatabase();
  ({ apiKey } = await createTestAccount(data.database));
  api = await startApiProcess(data.urls.api);
});
afterAll(async () => {
  await api.part.stop();
  await data.drop();
});

const problem = z.object({ code: z.string(), status: z.number(), request_id: z.string() });

/** Verifies the headers that every response must have, whichever layer wrote it. */
function checkHeaders({ headers }: WireAnswer) {
  expect(headers.get('request-id')).toMatch(/^req_/);
  expect(headers.get('corridor-version')).toBe('2026-06-01');
  expect(headers.get('x-content-type-options')).toBe('nosniff');
  expect(headers.get('referrer-policy')).toBe('no-referrer');
  expect(headers.has('cache-control')).toBe(true);
  expect(headers.has('strict-transport-security')).toBe(false);
}

function checkProblem(answer: WireAnswer, status: number, code: string) {
  expect({ status: answer.status, type: answer.headers.get('content-type') }).toEqual({
    status,
    type: 'application/problem+json',
  });
  const body = problem.parse(JSON.parse(answer.body));
  expect(body).toMatchObject({ code, status, request_id: answer.headers.get('request-id') });
  expect(answer.body).not.toMatch(/node:|\.js|\.ts|HPE_|at \w+ \(/);
  checkHeaders(answer);
}

const get = (path: string, more = '') =>
  `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\n${more}\r\n`;
const post = (path: string, headers: string) =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\n${headers}\r\n`;
const form = 'source_currency=USD&destination_currency=EUR&amount=125000';

const unreadable: readonly (readonly [name: string, sent: string, status: number, code: string])[] =
  [
    ['no method', ' / HTTP/1.1\r\n\r\n', 400, 'request_malformed'],
    ['another protocol', 'SSH-2.0-OpenSSH_9.6\r\n\r\n', 400, 'request_malformed'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'request_malformed'],
    ['a line of TLS', '\u0016\u0003\u0001\u0002\u0000\u0001', 400, 'request_malformed'],
    ['a space before the colon', 'GET / HTTP/1.1\r\nHost : a\r\n\r\n', 400, 'request_malformed'],
    ['a header over two lines', 'GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n', 400, ''],
    ['U+0000 in a header', 'GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n', 400, ''],
    ['a bare CR', 'GET / HTTP/1.1\r\nHost: a\r\nX: b\rY: c\r\n\r\n', 400, ''],
    ['no host', 'GET /livez HTTP/1.1\r\n\r\n', 400, 'header_invalid'],
    ['an address that is none', 'GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n', 400, ''],
    ['an address in a path', 'GET //a@[# HTTP/1.1\r\nHost: a\r\n\r\n', 400, ''],
    ['a whole address', 'GET http://a/livez HTTP/1.1\r\nHost: a\r\n\r\n', 400, ''],
    ['a path without a slash', 'GET livez HTTP/1.1\r\nHost: a\r\n\r\n', 400, ''],
    ['the server as a path', 'GET * HTTP/1.1\r\nHost: a\r\n\r\n', 400, ''],
    ['two hosts', 'GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', 400, 'header_invalid'],
    [
      'a header of 20 KB',
      `GET /livez HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    [
      '101 headers',
      `GET /livez HTTP/1.1\r\nHost: a\r\n${'X: y\r\n'.repeat(100)}\r\n`,
      431,
      'headers_too_large',
    ],
    ['an expectation', get('/livez', 'Expect: a-pony\r\n'), 417, 'expectation_unsupported'],
    ['a tunnel', 'CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: a\r\n\r\n', 404, 'route_not_found'],
    [
      'a length and chunks',
      'POST /v1/quotes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      400,
      '',
    ],
    [
      'two lengths',
      'POST /v1/quotes HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef',
      400,
      '',
    ],
    [
      'a length with a sign',
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde',
      400,
      '',
    ],
    [
      'an encoding after the chunks',
      'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n',
      400,
      '',
    ],
    [
      'an obscured encoding',
      'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n',
      400,
      '',
    ],
  ];

describe('what is not an HTTP/1.1 request gets problem details and a closed connection', () => {
  it.each(unreadable)('%s', async (_name, sent, status, code) => {
    const wire = await openWire(api.url);
    wire.write(sent);
    const answer = await wire.answer();
    checkProblem(answer, status, code || 'request_malformed');
    expect(answer.headers.get('connection')).toBe('close');
    // Bytes smuggled in after it are not answered as a separate request.
    expect(await wire.closed).toBe('');
  });

  it('a broken chunk of a body that is being read', async () => {
    const wire = await openWire(api.url);
    wire.write(`${post('/v1/quotes', 'Transfer-Encoding: chunked\r\n')}5\r\nhello\r\nzz\r\n`);
    checkProblem(await wire.answer(), 400, 'request_malformed');
    expect(await wire.closed).toBe('');
  });

  it('headers that are sent a byte at a time, while others are served', async () => {
    const slow = await Promise.all(Array.from({ length: 20 }, () => openWire(api.url)));
    for (const wire of slow) wire.write('GET /livez HTTP/1.1\r\nHost: a\r\nX: ');
    const dripping = setInterval(() => {
      for (const wire of slow) wire.write('x');
    }, 250);
    const client = createClient(api.url, apiKey);
    try {
      const ended = Promise.all(slow.map((wire) => wire.answer()));
      expect((await client('GET /v1/balances')).status).toBe(200);
      for (const answer of await ended) checkProblem(answer, 408, 'request_timeout');
      expect(await Promise.all(slow.map(({ closed }) => closed))).toEqual(slow.map(() => ''));
    } finally {
      clearInterval(dripping);
    }
  });

  it('a connection on which nothing is sent is closed without an answer', async () => {
    const wire = await openWire(api.url);
    expect(await wire.closed).toBe('');
  });
});

describe('a connection', () => {
  it('is kept for the next request, and answers pipelined requests in order', async () => {
    const wire = await openWire(api.url);
    wire.write(get('/v1/balances'));
    expect(await wire.answer()).toMatchObject({ status: 200 });
    // A quote takes a transaction, while the requests behind it can be answered at once.
    wire.write(
      `${post('/v1/quotes', `Content-Length: ${form.length}\r\n`).replace('json', 'x-www-form-urlencoded')}${form}`,
    );
    wire.write(get('/livez') + get('/v1/account') + get('/nowhere') + get('/livez'));
    const statuses: number[] = [];
    for (let i = 0; i < 5; i += 1) statuses.push((await wire.answer()).status);
    expect(statuses).toEqual([201, 200, 200, 404, 200]);
    wire.destroy();
  });

  it('answers pipelined lists, even behind a request that waits for events', async () => {
    const wire = await openWire(api.url);
    wire.write(get('/v1/events?after=0', 'Prefer: wait=1\r\n') + get('/v1/payouts').repeat(3));
    for (let i = 0; i < 4; i += 1) expect((await wire.answer()).status).toBe(200);
    wire.destroy();
  });

  it('answers the requests before one that cannot be read', async () => {
    const wire = await openWire(api.url);
    wire.write(`${get('/v1/balances')}${get('/v1/account')}nonsense\r\n\r\n${get('/livez')}`);
    expect((await wire.answer()).status).toBe(200);
    expect((await wire.answer()).status).toBe(200);
    checkProblem(await wire.answer(), 400, 'request_malformed');
    expect(await wire.closed).toBe('');
  });
});

describe('every answer', () => {
  it.each([
    ['GET /livez', 200],
    ['GET /readyz', 404],
    ['HEAD /livez', 200],
    ['HEAD /v1/balances', 200],
    ['HEAD /v1/payouts/po_1', 404],
    ['OPTIONS /v1/balances', 405],
    ['TRACE /v1/balances', 405],
    ['OPTIONS *', 404],
    ['HEAD /v1/quotes', 405],
    ['GET /nowhere', 404],
    ['GET /docs', 200],
    ['GET /openapi.json', 200],
    ['GET /.well-known/corridor-webhook-keys', 200],
  ])('to %s has the status %d and the headers that protect it', async (request, status) => {
    const answer = await fetchBare(request);
    expect(answer.status).toBe(status);
    checkHeaders(answer);
    if (status === 405) expect(answer.headers.get('allow')).toMatch(/GET|POST/);
    const isPage = answer.headers.get('content-type')?.startsWith('text/html');
    if (isPage) {
      expect(answer.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    }
  });

  it('to HEAD is the answer to GET without its body', async () => {
    for (const path of ['/livez', '/v1/account', '/v1/quotes/qt_1']) {
      const [head, whole] = [await fetchBare(`HEAD ${path}`), await fetchBare(`GET ${path}`)];
      expect(head.status).toBe(whole.status);
      for (const name of ['content-type', 'content-length']) {
        expect(head.headers.get(name), `${path} ${name}`).toBe(whole.headers.get(name));
      }
    }
  });

  it('to an unknown method names the allowed methods of the route', async () => {
    for (const { path } of routes) {
      const answer = await fetchBare(`PUT ${path.replace(':id', 'po_1')}`);
      const methods = routes.filter((route) => route.path === path).map(({ method }) => method);
      const allowed = answer.headers.get('allow')?.toLowerCase().split(', ') ?? [];
      expect(answer.status).toBe(405);
      expect(allowed.filter((method) => method !== 'head').sort(), path).toEqual(methods.sort());
    }
  });
});

/** Sends one request on a separate connection; the answer to HEAD has no body. */
async function fetchBare(request: string): Promise<WireAnswer> {
  const wire = await openWire(api.url);
  wire.write(
    `${request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`,
  );
  if (!request.startsWith('HEAD')) return wire.answer();
  const text = await wire.closed;
  expect(text.endsWith('\r\n\r\n')).toBe(true);
  const headers = text.split('\r\n').flatMap((line) => {
    const [, name, value] = /^([^:]+): (.*)$/.exec(line) ?? [];
    return name === undefined ? [] : [[name.toLowerCase(), value ?? ''] as const];
  });
  const status = Number.parseInt(text.split(' ')[1] ?? '', 10);
  return { status, headers: new Map(headers), body: '' };
}

it('a body that comes too slowly is refused, and its connection ends', async () => {
  const limits = { ...httpLimits, headersMs: 200, requestMs: 300, checkMs: 50, lingerMs: 100 };
  const { url, stop } = await listen(limits, (request, response) => {
    // Reads the body to its end, as a route does.
    request.resume().on('end', () => response.end('read'));
  });
  const wire = await openWire(url);
  wire.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell');
  checkProblem(await wire.answer(), 408, 'request_timeout');
  expect(await wire.closed).toBe('');
  await stop(0);
});

/** Starts one of our servers with limits short enough to wait for. */
async function listen(
  limits: Parameters<typeof createHttpServer>[3],
  handle: RequestListener,
  proxies: readonly string[] = [],
) {
  const log = pino({ level: 'silent' });
  const http = createHttpServer(handle, log, trustProxies(proxies), limits);
  http.server.listen(0, '127.0.0.1');
  await once(http.server, 'listening');
  return { ...http, url: urlOf(http.server) };
}

function urlOf(server: NetServer): string {
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
}

describe('an answer that is not read', () => {
  const limits = { ...httpLimits, answerMs: 300, checkMs: 50 };
  /** More than the buffers on both ends hold. */
  const page = Buffer.alloc(32 * 1024 * 1024, 'x');

  it('closes its connection when its time is over, and drops the requests behind it', async () => {
    const dropped: string[] = [];
    const { server, url, stop } = await listen(limits, (request, response) => {
      response.once('close', () => dropped.push(request.url ?? ''));
      response.end(page);
    });
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => undefined).pause();
    socket.write('GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n');
    await eventually('the connection is cut', 10_000, () =>
      connectionsOf(server).then((count) => count === 0 || undefined),
    );
    // Each request has released its place once its connection was gone.
    await eventually('both requests are dropped', 5_000, () => dropped.length >= 2 || undefined);
    expect(dropped.sort()).toEqual(['/1', '/2']);
    socket.destroy();
    await stop(0);
  });

  it('is not cut off while its request is being answered', async () => {
    const { url, stop } = await listen(limits, (_request, response) => {
      setTimeout(() => response.end('late'), 4 * limits.answerMs);
    });
    const wire = await openWire(url);
    wire.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    expect((await wire.answer()).body).toBe('late');
    wire.destroy();
    await stop(0);
  });
});

function connectionsOf(server: NetServer): Promise<number> {
  return new Promise((resolve, reject) => {
    server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
  });
}

describe('a connection without a valid key', () => {
  const hello = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';
  const asCustomer: RequestListener = (request, response) => {
    if (request.headers['x-key'] !== undefined) trusted.add(request.socket);
    response.end('{}');
  };
  const customerHello = 'GET / HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n';
  const ask = async (wire: Wire, text: string) => {
    wire.write(text);
    return (await wire.answer()).status;
  };

  it('is closed soon after its answer, while a customer’s stays', async () => {
    const { url, stop } = await listen({ ...httpLimits, strangerIdleMs: 200 }, asCustomer);
    const [stranger, customer] = await Promise.all([openWire(url), openWire(url)]);
    await ask(customer, customerHello);
    await ask(stranger, hello);
    expect(await stranger.closed).toBe('');
    // This connection has authenticated once.
    expect(await ask(customer, hello)).toBe(200);
    customer.destroy();
    await stop(0);
  });

  it('is closed for a newer one of its address', async () => {
    const { url, stop } = await listen({ ...httpLimits, anonymous: 2 }, asCustomer);
    const customer = await openWire(url);
    await ask(customer, customerHello);
    const oldest = await openWire(url);
    const newer = [await openWire(url), await openWire(url)];
    expect(await oldest.closed).toBe('');
    for (const wire of [customer, ...newer]) {
      expect(await ask(wire, hello)).toBe(200);
      wire.destroy();
    }
    await stop(0);
  });

  it('is closed for a newer one when the maximum number is reached', async () => {
    const { url, stop } = await listen({ ...httpLimits, connections: 3 }, asCustomer);
    const customer = await openWire(url);
    await ask(customer, customerHello);
    const stranger = await openWire(url);
    const next = await openWire(url);
    expect(await stranger.closed).toBe('');
    for (const wire of [next, customer]) {
      expect(await ask(wire, customerHello)).toBe(200);
      wire.destroy();
    }
    await stop(0);
  });

  it('is not counted and stays open if it comes from a trusted proxy', async () => {
    const limits = { ...httpLimits, anonymous: 1, strangerIdleMs: 100 };
    const { url, stop } = await listen(limits, asCustomer, ['127.0.0.0/8']);
    const wires = await Promise.all(Array.from({ length: 3 }, () => openWire(url)));
    for (const wire of wires) await ask(wire, hello);
    // The connection of an untrusted address is cut within this time.
    const other = await listen(limits, asCustomer);
    const stranger = await openWire(other.url);
    await ask(stranger, hello);
    expect(await stranger.closed).toBe('');
    for (const wire of wires) {
      expect(await ask(wire, hello)).toBe(200);
      wire.destroy();
    }
    await Promise.all([stop(0), other.stop(0)]);
  });
});

describe('the log line of a request', () => {
  const lineOf = (lines: readonly string[], requestId: string | undefined) =>
    eventually('the log line', 5_000, () => {
      const text = lines.find((line) => line.includes(`"request":"${requestId}"`));
      return text === undefined
        ? undefined
        : z.record(z.string(), z.unknown()).parse(JSON.parse(text));
    });

  it('contains the account, the id of the key and the address, and no secrets', async () => {
    const answer = await fetchBare('GET /v1/account');
    const line = await lineOf(api.lines, answer.headers.get('request-id'));
    const [key] = await data.database<{ id: string; accountId: string }[]>`
      select id, account_id from api_keys where key_hash = ${hashOfKey(apiKey)}`;
    expect(line).toMatchObject({
      ...{ account: key?.accountId, key_id: key?.id, address: '127.0.0.1' },
      ...{ method: 'GET', path: '/v1/account', status: 200 },
    });
    expect(api.lines.join('\n')).not.toContain(apiKey);
    const strange = await fetchBare('GET /nowhere');
    const other = await lineOf(api.lines, strange.headers.get('request-id'));
    expect(other).toMatchObject({ address: '127.0.0.1', status: 404 });
    expect(Object.keys(other)).not.toContain('account');
  });

  it('contains the address that a trusted proxy reports, but no forged one', async () => {
    const ask = async (process: ApiProcess, forwarded: string) => {
      const answer = await fetch(`${process.url}/livez`, {
        headers: { 'x-forwarded-for': forwarded },
      });
      const line = await lineOf(process.lines, answer.headers.get('request-id') ?? '');
      return line['address'];
    };
    expect(await ask(api, '203.0.113.7')).toBe('127.0.0.1');
    const trusting = await startApiProcess(data.url, { TRUSTED_PROXIES: '10.0.0.0/8, 127.0.0.1' });
    expect(await ask(trusting, '203.0.113.7')).toBe('203.0.113.7');
    expect(await ask(trusting, '198.51.100.1, 203.0.113.7, 10.1.2.3')).toBe('203.0.113.7');
    expect(await ask(trusting, 'nonsense')).toBe('127.0.0.1');
    await trusting.part.stop();
  });
});

/** Whether a new connection is still accepted and answered. */
async function isReached(url: string): Promise<boolean> {
  try {
    const wire = await openWire(url);
    wire.write('GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    return (await wire.answer()).status === 200;
  } catch {
    return false;
  }
}

describe('SIGTERM', () => {
  it('reports not ready, answers what was sent, closes the rest, then exits', async () => {
    const stopped = await startApiProcess(data.urls.api, { STOP_NOTICE_SECONDS: '2' });
    const head = post('/v1/quotes', `Content-Length: ${form.length}\r\n`);
    const wires = await Promise.all(Array.from({ length: 2 }, () => openWire(stopped.url)));
    const [idle, reading] = wires;
    if (idle === undefined || reading === undefined) throw new Error('There are no connections.');
    for (const wire of wires) {
      wire.write(get('/livez'));
      await wire.answer();
    }
    // Half of a request; the other half follows when new connections are no longer accepted.
    reading.write(head.replace('json', 'x-www-form-urlencoded') + form.slice(0, 10));
    expect(await isReached(stopped.url)).toBe(true);
    stopped.terminate();
    await eventually('the answer 503', 5_000, () => isUnready(stopped));
    const last = await openWire(stopped.url);
    last.write(get('/livez'));
    expect((await last.answer()).headers.get('connection')).toBe('close');
    // A load balancer that has not noticed yet is still served.
    expect(await isReached(stopped.url)).toBe(true);
    expect(await idle.closed).toBe('');
    await eventually('a refused connection', 5_000, async () =>
      (await isReached(stopped.url)) ? undefined : true,
    );
    reading.write(form.slice(10));
    const answer = await reading.answer();
    expect(answer.status).toBe(201);
    expect(await reading.closed).toBe('');
    expect(await stopped.part.exited).toMatchObject({ code: 0 });
  });

  it('does not wait forever for a request that never ends', async () => {
    const stopped = await startApiProcess(data.urls.api);
    const wire = await openWire(stopped.url);
    wire.write(`${post('/v1/quotes', 'Content-Length: 50\r\n')}{`);
    expect(await isReached(stopped.url)).toBe(true);
    stopped.terminate();
    expect(await wire.closed).toBe('');
    expect(await stopped.part.exited).toMatchObject({ code: 0 });
  });
});

async function isUnready({ metricsUrl }: ApiProcess): Promise<true | undefined> {
  const { status } = await fetch(`${metricsUrl}/readyz`);
  return status === 503 || undefined;
}

describe('/readyz, beside the metrics', () => {
  it('queries the database once for all requests within two seconds', async () => {
    const line = await openCountingLine(data.url);
    const checked = await startApiProcess(line.url);
    const ready = () => fetch(`${checked.metricsUrl}/readyz`);
    expect((await ready()).status).toBe(200);
    const before = line.bytes();
    const statuses = await Promise.all(Array.from({ length: 20 }, ready));
    expect(new Set(statuses.map(({ status }) => status))).toEqual(new Set([200]));
    // At most one more check, if the first result expires meanwhile: a few hundred bytes.
    expect(line.bytes() - before).toBeLessThan(2_000);
    await line.close();
    const unready = await eventually('the answer 503', 10_000, () => isUnready(checked));
    expect(unready).toBe(true);
    await checked.part.stop();
  });
});

/** A forwarder to the database that counts the bytes sent to it. */
async function openCountingLine(target: string) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let bytes = 0;
  const server = createNetServer((client) => {
    const upstream = connect(Number(port), hostname);
    client.on('data', (sent) => {
      bytes += sent.length;
    });
    client.pipe(upstream).pipe(client);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(target);
  url.port = new URL(urlOf(server)).port;
  return {
    url: url.href,
    bytes: () => bytes,
    close: async () => {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}

it.each([
  ['the parser', 'GET / HTTP/1.1\r\nHost : planted-in-a-header\r\n\r\n', '127.0.5.1'],
  ['its head', 'GET /planted-in-a-header HTTP/1.1\r\n\r\n', '127.0.5.2'],
  ['a tunnel', 'CONNECT planted-in-a-header:22 HTTP/1.1\r\nHost: a\r\n\r\n', '127.0.5.3'],
  ['Expect', 'GET /planted-in-a-header HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n', '127.0.5.4'],
])(
  'logs why and for whom %s refuses a request, and nothing that was sent',
  async (_, sent, address) => {
    const wire = await openWire(api.url, address);
    wire.write(sent);
    await wire.closed;
    await eventually('the log line', 5_000, () =>
      api.lines.find(
        (line) =>
          line.includes('refused before it was read') && line.includes(`"address":"${address}"`),
      ),
    );
    expect(api.lines.join('\n')).not.toContain('planted-in-a-header');
  },
);

it('the port of a stopped API is free', async () => {
  const stopped = await startApiProcess(data.urls.api);
  await stopped.part.stop();
  const server = createNetServer().listen(Number(new URL(stopped.url).port), '127.0.0.1');
  await once(server, 'listening');
  server.close();
});

describe('an answer is compressed', () => {
  /** The raw response: fetch would decompress it silently. */
  async function sent(path: string, acceptEncoding?: string) {
    const headers = {
      authorization: `Bearer ${apiKey}`,
      ...(acceptEncoding === undefined ? {} : { 'accept-encoding': acceptEncoding }),
    };
    const answer = await request(api.url + path, { headers });
    const bytes = Buffer.from(await answer.body.arrayBuffer());
    expect(answer.headers['content-length']).toBe(String(bytes.length));
    return { ...answer, bytes };
  }

  it.each(['/v1/corridors', '/openapi.json', '/docs/scalar.js'])(
    'when %s is requested with gzip, and decompresses to the same bytes',
    async (path) => {
      const plain = await sent(path);
      expect(plain.headers['content-encoding']).toBeUndefined();
      for (const acceptEncoding of ['gzip', 'br;q=1.0, gzip;q=0.8, *;q=0.1']) {
        const packed = await sent(path, acceptEncoding);
        expect(packed.headers['content-encoding']).toBe('gzip');
        expect(packed.headers['vary']).toContain('Accept-Encoding');
        // Compared as buffers, since toEqual would check megabytes byte by byte.
        expect(gunzipSync(packed.bytes).equals(plain.bytes)).toBe(true);
        expect(packed.bytes.length).toBeLessThan(plain.bytes.length / 3);
        for (const name of ['content-type', 'cache-control', 'etag']) {
          expect(packed.headers[name]).toEqual(plain.headers[name]);
        }
      }
      for (const acceptEncoding of ['identity', 'gzip;q=0', 'br', 'gzip;q=0, *;q=0']) {
        expect((await sent(path, acceptEncoding)).bytes.equals(plain.bytes)).toBe(true);
      }
    },
  );

  it('if it is long, even a refusal, but not if it is short', async () => {
    const short = await sent('/v1/balances', 'gzip');
    expect(short.headers['content-encoding']).toBeUndefined();
    const names = Array.from({ length: 50 }, (_, index) => `unknown${index}=1`);
    const refusal = await sent(`/v1/payouts?${names.join('&')}`, 'gzip');
    expect(refusal.headers['content-encoding']).toBe('gzip');
    expect(refusal.headers['content-type']).toBe('application/problem+json');
    const errorList = z.object({ errors: z.array(problem.pick({ code: true })) });
    expect(errorList.parse(JSON.parse(gunzipSync(refusal.bytes).toString())).errors).toHaveLength(
      50,
    );
  });

  it('and not sent again to a client that has it, compressed or not', async () => {
    const { headers } = await sent('/openapi.json', 'gzip');
    for (const acceptEncoding of ['gzip', 'identity']) {
      const again = await request(`${api.url}/openapi.json`, {
        headers: { 'if-none-match': String(headers['etag']), 'accept-encoding': acceptEncoding },
      });
      expect(again.statusCode).toBe(304);
      expect(again.headers['content-encoding']).toBeUndefined();
      expect(await again.body.text()).toBe('');
    }
  });
});
