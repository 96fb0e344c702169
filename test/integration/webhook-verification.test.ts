import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';
import { transaction } from '../../src/db/client.js';
import { purgeProbes } from '../../src/db/webhookProbes.js';
import { guardedLookups } from '../../src/webhooks/guard.js';
import { createSender } from '../../src/webhooks/sender.js';
import { eventually } from '../assertions/eventually.js';
import { textsIn } from '../assertions/history.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { absentTemporal } from '../fixtures/interleaving.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount, untilLockWaits } from '../servers/database.js';
import { startSecondApi } from '../servers/secondApi.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

/** Receivers are on loopback. This API requires proof of ownership for them, as production does. */
beforeAll(async () => {
  const anywhere = { allowInsecure: true, allowPrivateAddresses: true };
  // Resolves every name to this machine, so that a test can have any number of hosts.
  const lookups = guardedLookups(anywhere, async () => [{ address: '127.0.0.1', family: 4 }]);
  const open = createSender(anywhere, { limitMs: 1_500, lookups });
  const patient = createSender(anywhere, { lookups });
  const guarded = createSender({ allowInsecure: true, allowPrivateAddresses: false });
  const sender = {
    send: (delivery: Parameters<typeof open.send>[0]) => {
      const slow = delivery.url.includes('patient') ? patient : open;
      return (delivery.url.includes('guarded') ? guarded : slow).send(delivery);
    },
    close: async () => {
      await Promise.all([open.close(), patient.close(), guarded.close()]);
    },
  };
  const webhookPolicy = { allowInsecure: true, allowPrivateAddresses: false };
  system = await startSystem({ sender, webhookPolicy });
});
afterAll(() => system.stop());

const message = z.looseObject({
  id: z.string(),
  type: z.string(),
  data: z.looseObject({ challenge: z.string().optional() }),
});
type Message = z.infer<typeof message>;

/** A receiver's way of answering a message. */
type Answering = (response: ServerResponse, sent: Message, body: string) => unknown;

const challengeOf = ({ data }: Message) => data.challenge ?? 'no challenge';
const rightly: Answering = (response, sent) => response.end(challengeOf(sent));

/** A receiver under a host name instead of an address, so that its URL is accepted. */
async function openReceiver(answering: Answering, host = 'localhost') {
  const held = { answering };
  const received: (Message & { readonly raw: string; readonly headers: Headers })[] = [];
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    const raw = await text(request);
    const sent = message.parse(JSON.parse(raw));
    const headers = new Headers(
      Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
    );
    received.push({ ...sent, raw, headers });
    held.answering(response, sent, raw);
  };
  const server = createServer((request, response) => void take(request, response));
  const port = await listenOnAnyPort(server);
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return { url: `http://${host}:${port}/hooks`, held, received };
}

/** A receiver that holds all requests until told to answer: the test controls what is in flight. */
async function openPatientReceiver(host = 'patient.example') {
  const waiting: (() => unknown)[] = [];
  const receiver = await openReceiver((response, sent) => {
    waiting.push(() => rightly(response, sent, ''));
  }, host);
  const answerAll = () => {
    receiver.held.answering = rightly;
    for (const answer of waiting.splice(0)) answer();
  };
  return { ...receiver, waiting, answerAll };
}

async function openCaller() {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  return { client, apiKey, accountId: account.id };
}

async function addEndpoint(client: ApiClient, url: string) {
  const added = await client('POST /v1/webhook_endpoints', { json: { url, events: ['*'] } });
  expect(added).toMatchObject({ status: 201, body: { status: 'unverified' } });
  const id = textOf(added, 'id');
  return { id, secret: textOf(added, 'secret'), path: `/v1/webhook_endpoints/${id}` };
}

async function addVerified(client: ApiClient, url: string) {
  const endpoint = await addEndpoint(client, url);
  expect(await client(`POST ${endpoint.path}/verify`)).toMatchObject({ status: 200 });
  return endpoint;
}

const statusOf = async (client: ApiClient, path: string) =>
  textOf(await client(`GET ${path}`), 'status');

async function settlePayout(client: ApiClient): Promise<string> {
  const payee = textOf(await client('POST /v1/beneficiaries', { json: beneficiary }), 'id');
  const json = { source_currency: 'USD', amount: 1_000, beneficiary: payee };
  const id = textOf(await client('POST /v1/payouts', { json }), 'id');
  await untilStatus(client, id, 'settled');
  return id;
}

/** The endpoint's rows, oldest first. */
const probesOf = (endpointId: string) => system.database<{ host: string; begunAt: Date | null }[]>`
  select host, begun_at from webhook_probes where endpoint_id = ${endpointId} order by id`;

/**
 * A verified endpoint whose receiver holds a test message, and the key of another test that was not
 * begun meanwhile. Both requests have ended.
 */
async function addWithTestNotBegun(client: ApiClient) {
  const receiver = await openPatientReceiver();
  const added = await addEndpoint(client, receiver.url);
  const verifying = client(`POST ${added.path}/verify`);
  await expect.poll(() => receiver.waiting).toHaveLength(1);
  receiver.waiting.pop()?.();
  expect(await verifying).toMatchObject({ status: 200 });
  const first = client(`POST ${added.path}/test`);
  await expect.poll(() => receiver.waiting).toHaveLength(1);
  const idempotencyKey = crypto.randomUUID();
  const second = client(`POST ${added.path}/test`, { idempotencyKey });
  await expect.poll(() => probesOf(added.id)).toHaveLength(3);
  receiver.answerAll();
  expect(await first).toMatchObject({ status: 200 });
  const refused = await second;
  expect(refused).toMatchObject({ status: 429, body: { code: 'too_many_in_flight' } });
  expect(refused.headers.get('retry-after')).toBe('1');
  return { ...added, ...receiver, idempotencyKey };
}

async function deliveriesTo(endpointId: string): Promise<number> {
  const { count } = await system.database`
    select from deliveries where endpoint_id = ${endpointId}`;
  return count;
}

describe('an endpoint that is not verified', () => {
  it('gets no events, and is neither enabled nor tested nor redelivered to', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver((response) => response.end());
    const { id, path } = await addEndpoint(client, receiver.url);
    const refusal = { status: 409, body: { code: 'webhook_endpoint_unverified' } };
    const enabled = await client(`POST ${path}`, {
      json: { status: 'enabled', url: receiver.url },
    });
    expect(enabled).toMatchObject(refusal);
    expect(textOf(enabled, 'detail')).toContain('POST /v1/webhook_endpoints/:id/verify');
    expect(await client(`POST ${path}`, { json: { status: 'disabled' } })).toMatchObject(refusal);
    expect(await client(`POST ${path}/test`)).toMatchObject(refusal);
    const json = { since: '2026-01-01T00:00:00Z' };
    expect(await client(`POST ${path}/redeliver`, { json })).toMatchObject(refusal);
    await settlePayout(client);
    expect(await deliveriesTo(id)).toBe(0);
    const listed = await client('GET /v1/webhook_endpoints?status=unverified');
    expect(listed.body).toMatchObject({ data: [{ id }] });
    expect(receiver.received).toEqual([]);
  });

  it('may get another URL, which is not challenged', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { path } = await addEndpoint(client, 'http://localhost:9/');
    const changed = await client(`POST ${path}`, { json: { url: receiver.url } });
    expect(changed.body).toMatchObject({ url: receiver.url, status: 'unverified' });
    expect(receiver.received).toEqual([]);
  });
});

describe('a challenge', () => {
  it.each<[string, Answering]>([
    ['as text', (response, sent) => response.writeHead(201).end(` ${challengeOf(sent)}\n`)],
    [
      'as JSON',
      (response, { data }) => response.end(JSON.stringify({ challenge: data.challenge })),
    ],
  ])('answered %s enables the endpoint, which then gets events', async (_, answering) => {
    const { client } = await openCaller();
    const receiver = await openReceiver(answering);
    const { id, path, secret } = await addEndpoint(client, receiver.url);
    const verified = await client(`POST ${path}/verify`, { idempotencyKey: crypto.randomUUID() });
    expect(verified).toMatchObject({ status: 200, body: { id, status: 'enabled' } });

    const [challenge] = receiver.received;
    expect(Object.keys(JSON.parse(challenge?.raw ?? ''))).toEqual([
      ...['id', 'type', 'timestamp', 'api_version', 'data'],
    ]);
    expect(challenge).toMatchObject({
      ...{ type: 'webhook_endpoint.challenge', api_version: '2026-06-01' },
      data: { webhook_endpoint: id, challenge: expect.stringMatching(/^[\w-]{43}$/) },
    });
    const headers = Object.fromEntries(challenge?.headers ?? []);
    expect(headers['webhook-id']).toBe(challenge?.id);
    new Webhook(secret).verify(challenge?.raw ?? '', headers);

    // An enabled endpoint gets no challenge.
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 200 });
    expect(receiver.received).toHaveLength(1);
    await settlePayout(client);
    await expect.poll(() => receiver.received.map(({ type }) => type)).toContain('payout.settled');
  });

  it.each<[string, Answering, string]>([
    ['an echo', (response, _sent, body) => response.end(body), 'was not the challenge'],
    [
      'an echo of its data',
      (response, { data }) => response.end(JSON.stringify(data)),
      'was not the challenge',
    ],
    ['another text', (response) => response.end('ok'), 'was not the challenge'],
    ['an empty body', (response) => response.writeHead(204).end(), 'was not the challenge'],
    [
      'the challenge under a 404',
      (response, sent) => response.writeHead(404).end(challengeOf(sent)),
      'HTTP 404',
    ],
    [
      'a redirect',
      (response) => response.writeHead(307, { location: '/hooks?again' }).end(),
      'HTTP 307',
    ],
    ['silence', () => undefined, 'timeout'],
    ['a hang-up', (response) => response.destroy(), 'UND_ERR_SOCKET'],
    [
      'something that is not HTTP',
      (response) => response.socket?.end('no HTTP\r\n\r\n'),
      'the response was not HTTP',
    ],
  ])('answered by %s fails, and leaves the endpoint as it is', async (_, answering, detail) => {
    const { client } = await openCaller();
    const receiver = await openReceiver(answering);
    const { path } = await addEndpoint(client, receiver.url);
    const refused = await client(`POST ${path}/verify`);
    expect(refused).toMatchObject({ status: 422, body: { code: 'webhook_challenge_failed' } });
    expect(textOf(refused, 'detail')).toContain(detail);
    expect(textOf(refused, 'detail')).toContain('Expected a 2xx response within 15 seconds');
    expect(receiver.received).toHaveLength(1);
    expect(await statusOf(client, path)).toBe('unverified');
    // A repaired receiver is verified without further steps.
    receiver.held.answering = rightly;
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 200 });
  });

  it('is not sent by a request whose key belongs to another one', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { path } = await addEndpoint(client, receiver.url);
    const idempotencyKey = crypto.randomUUID();
    await client('POST /v1/beneficiaries', { json: beneficiary, idempotencyKey });
    const verified = await client(`POST ${path}/verify`, { idempotencyKey });
    expect(verified).toMatchObject({ status: 422, body: { code: 'idempotency_key_reused' } });
    expect(receiver.received).toEqual([]);
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 200 });
  });

  it('is not replaced by a key that expires before it is bound again', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver((response) => response.writeHead(500).end());
    const { path } = await addEndpoint(client, receiver.url);
    const idempotencyKey = crypto.randomUUID();
    await client('POST /v1/beneficiaries', { json: beneficiary, idempotencyKey });
    await system.database`
      update idempotency_keys set expires_at = now() + interval '1 second'
       where key = ${idempotencyKey}`;
    let others: Promise<unknown> = Promise.resolve();
    let verifying: ReturnType<ApiClient> | undefined;
    await transaction(system.database, async (sql) => {
      await sql`lock table beneficiaries in exclusive mode`;
      // As many writes as an account may make at a time, so that the verification waits behind them.
      const adding = Array.from({ length: 12 }, () =>
        client('POST /v1/beneficiaries', { json: beneficiary }),
      );
      others = Promise.all(adding);
      await untilLockWaits(system.database, 'the others wait', 20_000);
      verifying = client(`POST ${path}/verify`, { idempotencyKey });
      await eventually('the key has expired', 20_000, async () => {
        const expired = await system.database`
          select from idempotency_keys where key = ${idempotencyKey} and expires_at <= clock_timestamp()`;
        return expired.count === 1 ? true : undefined;
      });
    });
    await others;
    expect((await verifying)?.status).not.toBe(200);
    expect(await statusOf(client, path)).toBe('unverified');
  });

  it('is not sent to a refused address, about which nothing is revealed', async () => {
    const { client } = await openCaller();
    const { path } = await addEndpoint(client, 'http://localhost:9/guarded');
    const refused = await client(`POST ${path}/verify`);
    expect(refused.status).toBe(422);
    expect(textOf(refused, 'detail')).toContain('the host does not resolve to a public address');
  });

  it('does not verify a URL that was set meanwhile', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { path } = await addEndpoint(client, receiver.url);
    receiver.held.answering = async (response, sent) => {
      await client(`POST ${path}`, { json: { url: 'http://localhost:9/' } });
      response.end(challengeOf(sent));
    };
    expect(await client(`POST ${path}/verify`)).toMatchObject({
      ...{ status: 409, body: { code: 'webhook_endpoint_unverified' } },
    });
    expect(await statusOf(client, path)).toBe('unverified');
  });

  it('runs one at a time', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver(() => undefined);
    const { path } = await addEndpoint(client, receiver.url);
    const arrived = Promise.withResolvers<() => void>();
    receiver.held.answering = (response, sent) =>
      arrived.resolve(() => response.end(challengeOf(sent)));
    const first = client(`POST ${path}/verify`);
    const answer = await arrived.promise;
    const second = client(`POST ${path}/verify`);
    await expect
      .poll(() => system.database`select from webhook_probes where url = ${receiver.url}`)
      .toHaveLength(2);
    answer();
    expect(await first).toMatchObject({ status: 200 });
    const refused = await second;
    expect(refused).toMatchObject({ status: 429, body: { code: 'too_many_in_flight' } });
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(receiver.received).toHaveLength(1);
  });

  it('whose worker has stopped counts as not answered', async () => {
    const { client } = await openCaller();
    const receiver = await openPatientReceiver();
    const { id, path } = await addEndpoint(client, receiver.url);
    const first = client(`POST ${path}/verify`);
    await expect.poll(() => receiver.waiting).toHaveLength(1);
    const second = client(`POST ${path}/verify`);
    await expect.poll(() => probesOf(id)).toHaveLength(2);
    await system.database`
      update webhook_probes set begun_at = now() - interval '26 seconds'
       where endpoint_id = ${id} and begun_at is null`;
    receiver.answerAll();
    expect(await first).toMatchObject({ status: 200 });
    const refused = await second;
    expect(refused).toMatchObject({ status: 422, body: { code: 'webhook_challenge_failed' } });
    expect(textOf(refused, 'detail')).toContain('the worker that sent it has stopped');
    expect(receiver.received).toHaveLength(1);
  });

  it('waits for Temporal no longer than other requests, and changes nothing without it', async () => {
    const { client, apiKey } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { path } = await addEndpoint(client, receiver.url);
    const second = await startSecondApi({ ...system, temporal: absentTemporal() });
    onTestFinished(second.close);
    const other = await openReceiver(rightly);
    const verified = await addVerified(client, other.url);
    const idempotencyKey = crypto.randomUUID();
    const withoutTemporal = createClient(second.url, apiKey);
    const answers = await Promise.all([
      withoutTemporal(`POST ${path}/verify`),
      withoutTemporal(`POST ${verified.path}/test`, { idempotencyKey }),
    ]);
    const unavailable = { status: 503, body: { code: 'service_unavailable' } };
    expect(answers).toMatchObject([unavailable, unavailable]);
    expect(await statusOf(client, path)).toBe('unverified');
    expect([receiver.received.length, other.received.length]).toEqual([0, 1]);
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 200 });
    // The same key repeats the test that was not sent.
    const test = await client(`POST ${verified.path}/test`, { idempotencyKey });
    expect(test).toMatchObject({ status: 200, body: { delivered: true } });
    expect(other.received).toHaveLength(2);
  });

  it('is in no history and no row, and neither are the secret and the responses', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver((response, _, body) => response.writeHead(500).end(body));
    const { id, path, secret } = await addEndpoint(client, receiver.url);
    await client(`POST ${path}/verify`);
    const handle = system.temporal.workflow.getHandle(`webhook-probe/${id}`);
    const read = async () => textsIn(JSON.stringify(await handle.fetchHistory())).join('\n');
    const [failed] = [await read()];
    const challenge = receiver.received[0] && challengeOf(receiver.received[0]);
    receiver.held.answering = rightly;
    await client(`POST ${path}/verify`);
    receiver.held.answering = (response) => response.writeHead(500).end('planted answer');
    expect((await client(`POST ${path}/test`)).body).toMatchObject({ response: 'planted answer' });
    const rows = await system.database<{ all: string }[]>`
      select p::text as all from webhook_probes p where endpoint_id = ${id}`;
    const kept = [failed, await read()];
    for (const planted of [challenge, secret, secret.slice(6), receiver.url, 'planted answer']) {
      expect(kept.filter((one) => one?.includes(planted ?? '-'))).toEqual([]);
    }
    expect(rows).toHaveLength(3);
    expect(rows.filter((row) => row.all.includes(challenge ?? '-'))).toEqual([]);
    expect(failed).toContain('prb_');
  });
});

describe('a new URL of a verified endpoint', () => {
  it('is refused, with all other changes, unless it answers the challenge', async () => {
    const { client } = await openCaller();
    const [old, other] = [await openReceiver(rightly), await openReceiver(rightly)];
    const { id, path } = await addVerified(client, old.url);
    other.held.answering = (response) => response.end('ok');
    const { body: before } = await client(`GET ${path}`);
    const json = { url: other.url, description: 'moved' };
    const refused = await client(`POST ${path}`, { json });
    const refusal = { code: 'webhook_challenge_failed', param: 'url' };
    expect(refused).toMatchObject({ status: 422, body: refusal });
    expect((await client(`GET ${path}`)).body).toEqual(before);

    other.held.answering = rightly;
    const idempotencyKey = crypto.randomUUID();
    const changed = await client(`POST ${path}`, { json, idempotencyKey });
    expect(changed).toMatchObject({ status: 200, body: { ...json, status: 'enabled' } });
    const challenged = other.received.map(({ type, data }) => [type, data['webhook_endpoint']]);
    expect(challenged).toEqual(Array(2).fill(['webhook_endpoint.challenge', id]));
    // Requests that change nothing send no challenge: a replay, the same URL, an update without a URL.
    const back = await client(`POST ${path}`, { json: { url: old.url } });
    expect(back.status).toBe(200);
    const repeat = await client(`POST ${path}`, { json, idempotencyKey });
    expect(repeat.headers.get('idempotent-replayed')).toBe('true');
    expect(repeat.body).toEqual(back.body);
    await client(`POST ${path}`, { json: { url: old.url, description: '' } });
    expect([old.received.length, other.received.length]).toEqual([2, 2]);
  });

  it('is challenged even while the endpoint is disabled', async () => {
    const { client } = await openCaller();
    const [old, other] = [await openReceiver(rightly), await openReceiver((r) => r.end('no'))];
    const { path } = await addVerified(client, old.url);
    await client(`POST ${path}`, { json: { status: 'disabled' } });
    const json = { url: other.url, status: 'enabled' };
    expect(await client(`POST ${path}`, { json })).toMatchObject({ status: 422 });
    expect(await statusOf(client, path)).toBe('disabled');
    // It has been verified at its current URL.
    expect(await client(`POST ${path}/verify`)).toMatchObject({ body: { status: 'disabled' } });
    expect(await client(`POST ${path}`, { json: { status: 'enabled' } })).toMatchObject({
      body: { status: 'enabled', url: old.url },
    });
  });
});

describe('a test message', () => {
  it.each([500, 410])(
    'that is answered %i leaves endpoint and deliveries as they were',
    async (code) => {
      const { client } = await openCaller();
      const receiver = await openReceiver(rightly);
      const { id, path, secret } = await addVerified(client, receiver.url);
      const { body: before } = await client(`GET ${path}`);
      receiver.held.answering = (response) => response.writeHead(code).end('out of order');
      const idempotencyKey = crypto.randomUUID();
      const tested = await client(`POST ${path}/test`, { idempotencyKey });
      expect(tested.body).toEqual({
        ...{ object: 'webhook_test', webhook_endpoint: id, delivered: false, http_status: code },
        ...{ latency_ms: expect.any(Number), error: `HTTP ${code}`, response: 'out of order' },
      });
      const repeat = await client(`POST ${path}/test`, { idempotencyKey });
      expect(repeat).toMatchObject({ status: 200, body: tested.body });
      expect(repeat.headers.get('idempotent-replayed')).toBe('true');
      expect(receiver.received).toHaveLength(2);
      const [, sent] = receiver.received;
      expect(sent).toMatchObject({ type: 'webhook_endpoint.test', data: before });
      new Webhook(secret).verify(sent?.raw ?? '', Object.fromEntries(sent?.headers ?? []));
      expect((await client(`GET ${path}`)).body).toEqual(before);
      expect(await deliveriesTo(id)).toBe(0);
    },
  );

  it('is not sent again by a worker that gets it again', async () => {
    const { client, accountId } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { path, id } = await addVerified(client, receiver.url);
    await client(`POST ${path}/test`);
    const rows = await system.database<{ id: string }[]>`
      select id from webhook_probes where endpoint_id = ${id}`;
    for (const { id: probeId } of rows) {
      await system.temporal.workflow.execute('webhookProbe', {
        ...{ workflowId: `again/${probeId}`, taskQueue: 'payouts' },
        args: [{ probeId, accountId }],
      });
    }
    expect([rows.length, receiver.received.length]).toEqual([2, 2]);
  });

  it('that was not started goes to the endpoint’s URL at the time of its repeat', async () => {
    const { client } = await openCaller();
    const { id, path, received, idempotencyKey } = await addWithTestNotBegun(client);
    const moved = await openReceiver(rightly, 'moved.example');
    await client(`POST ${path}`, { json: { url: moved.url } });
    const repeat = await client(`POST ${path}/test`, { idempotencyKey });
    expect(repeat).toMatchObject({ status: 200, body: { delivered: true } });
    expect(moved.received.map(({ type }) => type)).toEqual([
      ...['webhook_endpoint.challenge', 'webhook_endpoint.test'],
    ]);
    expect(received).toHaveLength(2);
    const hosts = (await probesOf(id)).map(({ host }) => host);
    expect(hosts).toEqual([
      ...['patient.example', 'patient.example', 'moved.example', 'moved.example'],
    ]);
  });

  it('whose worker has stopped fails once it can no longer succeed', async () => {
    const { client } = await openCaller();
    const { id, path, received, idempotencyKey } = await addWithTestNotBegun(client);
    const begunAgo = async (ago: string) => {
      const { count } = await system.database`
        update webhook_probes set begun_at = now() - ${ago}::interval
         where endpoint_id = ${id} and outcome is null`;
      expect(count).toBe(1);
      return client(`POST ${path}/test`, { idempotencyKey });
    };
    // The result may still come within the activity's 20 s.
    expect(await begunAgo('20 seconds')).toMatchObject({ status: 503 });
    const outcome = {
      ...{ object: 'webhook_test', webhook_endpoint: id, delivered: false, http_status: null },
      error: 'unknown: the worker that sent it has stopped',
      ...{ latency_ms: null, response: null },
    };
    for (const ago of ['26 seconds', '29 days']) {
      expect(await begunAgo(ago)).toMatchObject({ status: 200, body: outcome });
    }
    expect(received).toHaveLength(2);
  });

  it('reports the receiver’s response, or why there is none', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { path } = await addVerified(client, receiver.url);
    await client(`POST ${path}`, { json: { status: 'disabled' } });
    receiver.held.answering = (response) => response.writeHead(202).end('x'.repeat(70_000));
    expect((await client(`POST ${path}/test`)).body).toMatchObject({
      ...{ delivered: true, http_status: 202, error: null, response: 'x'.repeat(2_048) },
    });
    receiver.held.answering = () => undefined;
    expect((await client(`POST ${path}/test`)).body).toMatchObject({
      ...{ delivered: false, http_status: null, error: 'timeout', response: null },
    });
  });
});

describe('challenges and tests to a host', () => {
  it('of an account are limited to ten an hour, so a stranger’s host gets no more, and no event', async () => {
    const { client, apiKey, accountId } = await openCaller();
    const stranger = await openReceiver((response) => response.end('hello'));
    // The same host with two ports.
    const another = await openReceiver((response) => response.end('hello'));
    const endpoints = [
      await addEndpoint(client, stranger.url),
      await addEndpoint(client, another.url),
    ];
    const second = await startSecondApi(system);
    onTestFinished(second.close);
    const clients = [client, createClient(second.url, apiKey)];
    const attempts = Array.from({ length: 14 }, (_, index) => {
      const { path = '' } = endpoints[index % 2] ?? {};
      return () => clients[(index >> 1) % 2]?.(`POST ${path}/verify`);
    });
    const answers = [];
    for (const attempt of attempts) answers.push(await attempt());
    await settlePayout(client);
    expect(answers.map((answer) => answer?.status)).toEqual([
      ...Array(10).fill(422),
      ...Array(4).fill(429),
    ]);
    const last = answers.at(-1);
    expect(last?.body).toMatchObject({
      ...{ code: 'rate_limited', detail: expect.stringContaining('an hour to localhost') },
    });
    const waitSeconds = Number(last?.headers.get('retry-after'));
    expect(waitSeconds).toBeGreaterThan(3_500);
    expect(waitSeconds).toBeLessThanOrEqual(3_600);
    const sent = [...stranger.received, ...another.received].map(({ type }) => type);
    expect(sent).toEqual(Array(10).fill('webhook_endpoint.challenge'));
    for (const { id } of endpoints) expect(await deliveriesTo(id)).toBe(0);

    // Each account has its own quota, and the oldest challenge frees a place after an hour.
    const other = await openCaller();
    const { path } = await addEndpoint(other.client, stranger.url);
    expect(await other.client(`POST ${path}/verify`)).toMatchObject({ status: 422 });
    await system.database`
      update webhook_probes set created_at = created_at - interval '1 hour'
       where id = (select min(id) from webhook_probes where account_id = ${accountId})`;
    expect((await attempts[0]?.())?.status).toBe(422);
    expect((await attempts[0]?.())?.status).toBe(429);
  });

  it('are limited even when they are requested at the same time', async () => {
    const { client, accountId } = await openCaller();
    const stranger = await openReceiver((response) => response.end('hello'));
    const endpoints = await Promise.all(
      Array.from({ length: 14 }, () => addEndpoint(client, stranger.url)),
    );
    const answers = await Promise.all(endpoints.map(({ path }) => client(`POST ${path}/verify`)));
    const refused = answers.filter(({ body }) => body['code'] === 'rate_limited');
    // Of the ten that count, some find more than four in flight.
    const sent = answers.filter(({ status }) => status === 422);
    const rows = await system.database`select from webhook_probes where account_id = ${accountId}`;
    expect([refused.length, rows.count, stranger.received.length]).toEqual([4, 10, sent.length]);
  });

  it('of an account are limited to sixty an hour over all hosts', async () => {
    const { client, accountId } = await openCaller();
    const receiver = await openReceiver((response) => response.end('hello'), 'n0.example');
    const { id, path } = await addEndpoint(client, receiver.url);
    // One machine under as many names as an attacker likes; the oldest challenge was sent 55 minutes ago.
    await system.database`
      insert into webhook_probes
        (id, account_id, endpoint_id, kind, url, host, created_at, begun_at, outcome)
      select 'prb_' || ${crypto.randomUUID()} || n, ${accountId}, ${id}, 'challenge',
             'http://n' || n || '.example/', 'n' || n || '.example', at, at, '{}'
        from generate_series(1, 58) n,
             lateral (select now() - case n when 1 then interval '55 minutes'
                                            else interval '10 minutes' end as at) sent`;
    const answers = [];
    for (const _ of Array(3)) answers.push(await client(`POST ${path}/verify`));
    expect(answers.map(({ status }) => status)).toEqual([422, 422, 429]);
    const [, , refused] = answers;
    expect(refused?.body).toMatchObject({
      ...{ code: 'rate_limited', detail: expect.stringContaining('60 challenges and tests') },
    });
    expect(refused?.body['detail']).toContain('an hour to all hosts');
    const waitSeconds = Number(refused?.headers.get('retry-after'));
    expect(waitSeconds).toBeGreaterThan(240);
    expect(waitSeconds).toBeLessThanOrEqual(300);
    expect(receiver.received).toHaveLength(2);
    // When the oldest has expired there is room for one.
    await system.database`
      update webhook_probes set created_at = created_at - interval '5 minutes'
       where account_id = ${accountId} and host = 'n1.example'`;
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 422 });
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 429 });
  });

  it('of an account are limited to four at once; a fifth is refused without waiting', async () => {
    const { client } = await openCaller();
    const receiver = await openPatientReceiver();
    const { port } = new URL(receiver.url);
    const add = (index: number) =>
      addEndpoint(client, `http://n${index}.patient.example:${port}/hooks`);
    const endpoints = await Promise.all([0, 1, 2, 3].map(add));
    const four = endpoints.map(({ path }) => client(`POST ${path}/verify`));
    await expect.poll(() => receiver.waiting).toHaveLength(4);
    const { id, path } = await add(4);
    const refused = await client(`POST ${path}/verify`);
    expect(refused).toMatchObject({ status: 429, body: { code: 'too_many_in_flight' } });
    expect(textOf(refused, 'detail')).toContain('and four per account');
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await probesOf(id)).toMatchObject([{ begunAt: null }]);
    // Another account still gets a place.
    const other = await openCaller();
    await addVerified(other.client, (await openReceiver(rightly)).url);
    expect(receiver.received).toHaveLength(4);
    receiver.answerAll();
    expect((await Promise.all(four)).map(({ status }) => status)).toEqual(Array(4).fill(200));
    expect(await client(`POST ${path}/verify`)).toMatchObject({ status: 200 });
  });

  it('that were not started stop counting after thirty seconds, as Retry-After says', async () => {
    const { client } = await openCaller();
    const receiver = await openPatientReceiver();
    const { id, path } = await addEndpoint(client, receiver.url);
    const another = await addEndpoint(client, receiver.url);
    const ten = Array.from({ length: 10 }, () => client(`POST ${path}/verify`));
    await expect.poll(() => receiver.waiting).toHaveLength(1);
    await expect.poll(() => probesOf(id)).toHaveLength(10);
    const refused = await client(`POST ${another.path}/verify`);
    expect(refused).toMatchObject({ status: 429, body: { code: 'rate_limited' } });
    const waitSeconds = Number(refused.headers.get('retry-after'));
    expect(waitSeconds).toBeGreaterThan(0);
    expect(waitSeconds).toBeLessThanOrEqual(30);
    receiver.answerAll();
    await Promise.all(ten);
    expect(await client(`POST ${another.path}/verify`)).toMatchObject({ status: 429 });
    await system.database`
      update webhook_probes set created_at = created_at - ${`${waitSeconds} seconds`}::interval
       where endpoint_id = ${id}`;
    expect(await client(`POST ${another.path}/verify`)).toMatchObject({ status: 200 });
  });

  it('are purged after thirty days', async () => {
    const { client } = await openCaller();
    const receiver = await openReceiver(rightly);
    const { id } = await addVerified(client, receiver.url);
    const count = async () =>
      (await system.database`select from webhook_probes where endpoint_id = ${id}`).count;
    await purgeProbes(system.worker, 10_000);
    expect(await count()).toBe(1);
    // The first characters of an ID encode its time: this one is from 2020.
    await system.database`
      update webhook_probes set id = 'prb_01dxf6dt00' || right(id, 16) where endpoint_id = ${id}`;
    await purgeProbes(system.worker, 10_000);
    expect(await count()).toBe(0);
  });
});
