import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { verifyWebhook } from '../../sandbox/demo/verifyWebhook.js';
import { guardedLookups, type UrlPolicy } from '../../src/webhooks/guard.js';
import { createSender, type Sender } from '../../src/webhooks/sender.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { startConnectProxy } from '../fakes/connectProxy.js';

const open: UrlPolicy = { allowInsecure: true, allowPrivateAddresses: true };
const secrets = [createWebhookSecret()];
/** Looks names up in the hosts file, because name servers need not know localhost. */
const hostsFile = (hostname: string) => lookup(hostname, { all: true });
const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Starts a receiver on a separate port; returns its URL. */
async function receiver(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ readonly url: string; readonly server: Server }> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : undefined;
  return { url: `http://127.0.0.1:${port}/hooks?x=1`, server };
}

function sender(policy = open, options = {}): Sender {
  const made = createSender(policy, options);
  closers.push(made.close);
  return made;
}

function delivery(url: string, account = 'acct_1') {
  const body = '{"name":"Jörg"}';
  return { account, url, id: 'evt_1', timestampSeconds: 1_800_000_000, body, secrets };
}

describe('the sender', () => {
  it('posts the signed bytes, and counts 2xx alone as delivered', async () => {
    const received: { request?: IncomingMessage; body?: Promise<string> } = {};
    const { url } = await receiver((request, response) => {
      received.request = request;
      received.body = text(request);
      response.writeHead(204).end();
    });
    const outcome = await sender().send(delivery(url));
    expect(outcome).toEqual({ kind: 'delivered', status: 204 });
    const headers = received.request?.headers ?? {};
    expect(received.request?.method).toBe('POST');
    expect(received.request?.url).toBe('/hooks?x=1');
    expect(headers).toMatchObject({
      'user-agent': 'Corridor-Webhooks/1',
      'content-type': 'application/json',
    });
    const verified = verifyWebhook({
      headers: {
        'webhook-id': String(headers['webhook-id']),
        'webhook-timestamp': String(headers['webhook-timestamp']),
        'webhook-signature': String(headers['webhook-signature']),
      },
      body: (await received.body) ?? '',
      secrets,
      nowSeconds: 1_800_000_000,
    });
    expect(verified).toBe(true);
  });

  it('reuses its connections', async () => {
    const { url, server } = await receiver((request, response) => {
      request.resume().on('end', () => response.end('thank you'));
    });
    const connections: unknown[] = [];
    server.on('connection', (socket) => connections.push(socket));
    const made = sender();
    for (let i = 0; i < 20; i += 1) await made.send(delivery(url));
    // The pool may open a second connection while the first is being returned.
    expect(connections.length).toBeLessThanOrEqual(2);
  });

  // Within less than the 4 s for which undici keeps an idle connection by default.
  it('closes the pool used least recently, but not before its last request has ended', {
    timeout: 2_000,
  }, async () => {
    const waiting: ServerResponse[] = [];
    const slow = await receiver((_, response) => void waiting.push(response));
    const quick = await receiver((_, response) => response.end());
    const requested = once(slow.server, 'request');
    const disconnected = new Promise((resolve) => {
      slow.server.on('connection', (socket) => socket.on('close', resolve));
    });
    const made = sender(open, { maxPools: 1 });
    const outcome = made.send(delivery(slow.url));
    await requested;
    expect(await made.send(delivery(quick.url))).toMatchObject({ kind: 'delivered' });
    for (const response of waiting) response.end();
    expect(await outcome).toMatchObject({ kind: 'delivered' });
    await disconnected;
  });

  it('keeps no customer waiting for another’s connections to the same host', async () => {
    const waiting: ServerResponse[] = [];
    const { url, server } = await receiver((request, response) => {
      if (request.url === '/slow') waiting.push(response);
      else response.end();
    });
    const made = sender();
    const slow = Array.from({ length: 32 }, () =>
      made.send(delivery(new URL('/slow', url).href, 'acct_slow')),
    );
    while (waiting.length < 16) await once(server, 'request');
    expect(await made.send(delivery(url))).toMatchObject({ kind: 'delivered' });
    expect(waiting).toHaveLength(16);
    server.on('request', (_, response: ServerResponse) => response.end());
    for (const response of waiting) response.end();
    for (const outcome of await Promise.all(slow)) {
      expect(outcome).toMatchObject({ kind: 'delivered' });
    }
  });

  it('does not follow a redirect', async () => {
    const paths: unknown[] = [];
    const { url } = await receiver((request, response) => {
      paths.push(request.url);
      response.writeHead(302, { location: '/elsewhere' }).end('moved');
    });
    const outcome = await sender().send(delivery(url));
    expect(outcome).toEqual({ kind: 'refused', status: 302, answer: 'moved' });
    expect(paths).toEqual(['/hooks?x=1']);
  });

  it('gives up on a receiver that does not answer in time, and closes the connection', async () => {
    const { url, server } = await receiver(() => undefined);
    const disconnected = new Promise((resolve) => {
      server.on('connection', (socket) => socket.on('close', resolve));
    });
    const outcome = await sender(open, { limitMs: 100 }).send(delivery(url));
    expect(outcome).toMatchObject({ kind: 'unreachable', reason: 'timeout' });
    await disconnected;
  });

  it('keeps the status of an answer whose body never ends', async () => {
    const { url } = await receiver((_, response) => {
      response.writeHead(500);
      response.write('half an ans');
    });
    const outcome = await sender(open, { limitMs: 200 }).send(delivery(url));
    expect(outcome).toMatchObject({ kind: 'refused', status: 500, answer: 'half an ans' });
  });

  it('stops reading an endless answer', async () => {
    const { url, server } = await receiver((_, response) => {
      response.writeHead(400);
      const chunk = Buffer.alloc(16 * 1024, 'x');
      const more = () => {
        while (!response.destroyed && response.write(chunk));
      };
      response.on('drain', more);
      more();
    });
    const disconnected = new Promise((resolve) => {
      server.on('connection', (socket) => socket.on('close', resolve));
    });
    const outcome = await sender().send(delivery(url));
    expect(outcome).toMatchObject({ kind: 'refused', status: 400, answer: 'x'.repeat(2_048) });
    await disconnected;
  });

  it('reports a receiver that answers 410 as gone', async () => {
    const { url } = await receiver((_, response) => response.writeHead(410).end('gone'));
    const outcome = await sender().send(delivery(url));
    expect(outcome).toEqual({ kind: 'gone', status: 410, answer: 'gone' });
  });

  it.each([
    ['control characters', Buffer.from('a\0b\x1b[31m\x7f\u0085\tc\r\nd'), 'a�b�[31m��\tc\r\nd'],
    ['a change of text direction', Buffer.from('a\u202eb'), 'a�b'],
    ['bytes that are not UTF-8', Buffer.from([0x61, 0xff, 0xc3, 0x28, 0x62]), 'a��(b'],
    ['half of a character at the end', Buffer.from(`${'x'.repeat(2_047)}é`), 'x'.repeat(2_047)],
  ])('shows an answer with %s as text', async (_, sent, answer) => {
    const { url } = await receiver((_request, response) => response.writeHead(500).end(sent));
    const outcome = await sender().send(delivery(url));
    expect(outcome).toMatchObject({ kind: 'refused', answer });
  });

  it.each([
    ['120', 120_000],
    ['9999999999', 9_999_999_999_000],
    ['Wed, 21 Oct 2015 07:28:00 GMT', 0],
    ['soon', undefined],
  ])('reads Retry-After: %s', async (value, retryAfterMs) => {
    const { url } = await receiver((_, response) => {
      response.writeHead(503, { 'retry-after': value }).end();
    });
    const outcome = await sender().send(delivery(url));
    expect(outcome).toMatchObject({ kind: 'refused', status: 503 });
    expect('retryAfterMs' in outcome ? outcome.retryAfterMs : undefined).toBe(retryAfterMs);
  });

  it('reports a receiver that hangs up or does not listen as unreachable', async () => {
    const { url, server } = await receiver((request) => request.socket.destroy());
    expect(await sender().send(delivery(url))).toMatchObject({
      kind: 'unreachable',
      reason: 'UND_ERR_SOCKET',
    });
    server.close();
    server.closeAllConnections();
    expect(await sender().send(delivery(url))).toMatchObject({
      kind: 'unreachable',
      reason: 'ECONNREFUSED',
    });
  });

  it('sends nothing to an address that the policy forbids', async () => {
    const requests: unknown[] = [];
    const { url, server } = await receiver((request, response) => {
      requests.push(request);
      response.end();
    });
    server.on('connection', (socket) => requests.push(socket));
    const policy = { allowInsecure: true, allowPrivateAddresses: false };
    const guarded = sender(policy, { lookups: guardedLookups(policy, hostsFile) });
    expect(await guarded.send(delivery(url))).toMatchObject({ kind: 'blocked' });
    const named = url.replace('127.0.0.1', 'localhost');
    expect(await guarded.send(delivery(named))).toEqual({
      kind: 'blocked',
      reason: 'the host does not resolve to a public address',
      detail: 'the name does not resolve to a public address',
    });
    expect(requests).toHaveLength(0);
  });

  it('throws on its own errors, and does not blame the receiver', async () => {
    const { url } = await receiver((_, response) => response.end());
    await expect(sender().send({ ...delivery(url), secrets: ['whsec_'] })).rejects.toThrow('bytes');
  });
});

describe('the sender with an egress proxy', () => {
  async function proxied(options: { readonly policy?: UrlPolicy; readonly deniedPort?: string }) {
    const proxy = await startConnectProxy(options.deniedPort);
    closers.push(proxy.stop);
    const { policy = open } = options;
    const proxyUrl = proxy.url.replace('//', '//corridor:p%40ss@');
    const lookups = guardedLookups(policy, hostsFile);
    return { proxy, send: sender(policy, { lookups, proxyUrl }).send };
  }

  it('connects through it to the address that was checked, and posts the bytes', async () => {
    const [from, bodies]: [string[], Promise<string>[]] = [[], []];
    const { url } = await receiver((request, response) => {
      from.push(String(request.socket.remotePort));
      bodies.push(text(request));
      response.writeHead(204).end();
    });
    const { proxy, send } = await proxied({});
    const named = url.replace('127.0.0.1', 'localhost');
    for (const to of [named, url]) {
      expect(await send(delivery(to))).toEqual({ kind: 'delivered', status: 204 });
    }
    const { host } = new URL(url);
    expect(await Promise.all(bodies)).toEqual([delivery(url).body, delivery(url).body]);
    expect(proxy.asked()).toEqual([host, host]);
    expect(proxy.logins()).toEqual(Array(2).fill(`Basic ${btoa('corridor:p@ss')}`));
    expect(from).toEqual(proxy.ports());
  });

  it('negotiates TLS with the receiver itself, by its name', async () => {
    const begun = Promise.withResolvers<Buffer>();
    const { url, server } = await receiver(() => undefined);
    server.on('connection', (socket) => {
      socket.once('data', (chunk) => {
        begun.resolve(chunk);
        socket.destroy();
      });
    });
    const { proxy, send } = await proxied({});
    const secure = url.replace('http://127.0.0.1', 'https://localhost');
    expect(await send(delivery(secure))).toMatchObject({ kind: 'unreachable' });
    // A TLS handshake record with the requested name (RFC 8446, RFC 6066).
    const bytes = await begun.promise;
    expect([bytes[0], bytes.includes('localhost')]).toEqual([22, true]);
    expect(proxy.asked()).toEqual([new URL(url).host]);
  });

  it('does not ask it for a blocked address', async () => {
    const { url } = await receiver((_, response) => response.end());
    const policy = { allowInsecure: true, allowPrivateAddresses: false };
    const { proxy, send } = await proxied({ policy });
    for (const to of [url, url.replace('127.0.0.1', 'localhost')]) {
      expect(await send(delivery(to))).toMatchObject({ kind: 'blocked' });
    }
    expect(proxy.asked()).toEqual([]);
  });

  it('reports an address that the proxy refuses as any blocked address', async () => {
    const { url } = await receiver((_, response) => response.end());
    const { proxy, send } = await proxied({ deniedPort: new URL(url).port });
    expect(await send(delivery(url))).toEqual({
      kind: 'blocked',
      reason: 'the host does not resolve to a public address',
      detail: 'the egress proxy answered 403',
    });
    expect(proxy.ports()).toEqual([]);
  });

  it('reports an absent receiver as unreachable, and throws if the proxy is absent', async () => {
    const { url, server } = await receiver((_, response) => response.end());
    server.close();
    const { proxy, send } = await proxied({});
    // Once with an answer of the proxy, once without.
    for (const _ of [1, 2]) {
      expect(await send(delivery(url))).toEqual({ kind: 'unreachable', reason: 'EHOSTUNREACH' });
    }
    expect(proxy.asked()).toHaveLength(2);
    await proxy.stop();
    await expect(send(delivery(url))).rejects.toThrow('the egress proxy does not answer');
  });
});
