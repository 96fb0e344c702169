import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';
import { webhookSecretsOf, webhookSecretsOpener } from '../../src/db/webhookSecrets.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { keyring } from '../fixtures/keyring.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

type Caller = {
  readonly client: ApiClient;
  readonly accountId: string;
  readonly pay: () => Promise<string>;
};

async function openCaller(): Promise<Caller> {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  const payee = textOf(await client('POST /v1/beneficiaries', { json: beneficiary }), 'id');
  const json = { source_currency: 'USD', amount: 1_000, beneficiary: payee };
  return {
    client,
    accountId: account.id,
    pay: async () => textOf(await client('POST /v1/payouts', { json }), 'id'),
  };
}

async function openReceiver(): Promise<Receiver> {
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  return receiver;
}

async function addEndpoint({ client }: Caller, url: string) {
  const json = { url, events: ['payout.settled'] };
  const added = await client('POST /v1/webhook_endpoints', { json });
  expect(added.status).toBe(201);
  const path = `/v1/webhook_endpoints/${textOf(added, 'id')}`;
  return { id: textOf(added, 'id'), secret: textOf(added, 'secret'), path, body: added.body };
}

const about = (payout: string) => (webhook: { readonly body: string }) =>
  webhook.body.includes(payout);

/** The statuses of an endpoint's deliveries, in the order of the events. */
async function statusesOf(endpointId: string): Promise<readonly string[]> {
  const rows = await system.database<{ status: string }[]>`
    select status from deliveries where endpoint_id = ${endpointId} order by event_id`;
  return rows.map(({ status }) => status);
}

async function untilStatuses(endpointId: string, expected: readonly string[]): Promise<void> {
  await expect.poll(() => statusesOf(endpointId), { timeout: 15_000 }).toEqual(expected);
}

/** Resolves when the failure of an attempt is recorded, and so no attempt is in progress. */
async function untilFailed(endpointId: string): Promise<void> {
  const statuses = () => system.database`
    select last_status from deliveries where endpoint_id = ${endpointId}`;
  await expect.poll(statuses, { timeout: 15_000 }).toEqual([{ lastStatus: 500 }]);
}

describe('a new endpoint', () => {
  it.each([
    ['http://127.0.0.1:9/', 'enabled'],
    ['http://localhost:9/', 'enabled'],
    ['http://0.0.0.0:9/', 'unverified'],
    ['https://example.com/', 'unverified'],
  ])('of a stack on one machine, with the URL %s, is %s', async (url, status) => {
    const { body } = await addEndpoint(await openCaller(), url);
    expect(body).toMatchObject({ url, status });
  });
});

describe('an update', () => {
  it('changes only the named properties, once for its key', async () => {
    const caller = await openCaller();
    const { path, body, secret } = await addEndpoint(caller, 'http://127.0.0.1:9/old');
    const { secret: _, ...before } = body;
    const idempotencyKey = crypto.randomUUID();
    const described = { json: { description: 'To the ledger' }, idempotencyKey };
    const first = await caller.client(`POST ${path}`, described);
    expect(first).toMatchObject({ status: 200, body: { ...before, description: 'To the ledger' } });
    expect(Object.keys(first.body)).toEqual(Object.keys(before));

    const json = {
      ...{ url: 'http://127.0.0.1:9/new', events: ['*'], description: '' },
      api_version: '2026-11-15',
    };
    const all = await caller.client(`POST ${path}`, { json });
    expect(all.body).toMatchObject({ ...json, description: null, status: 'enabled' });
    expect(JSON.stringify(all.body)).not.toContain(secret);
    // A replay changes nothing, and returns the current state.
    const replay = await caller.client(`POST ${path}`, described);
    expect(replay.headers.get('idempotent-replayed')).toBe('true');
    expect(replay.body).toEqual(all.body);
  });

  it('refuses a URL that an endpoint cannot be created with', async () => {
    const caller = await openCaller();
    const { path, body } = await addEndpoint(caller, 'http://127.0.0.1:9/old');
    const json = { url: 'ftp://example.com/', description: 'new' };
    expect(await caller.client(`POST ${path}`, { json })).toMatchObject({
      status: 422,
      body: { code: 'webhook_url_refused', param: 'url' },
    });
    const { secret: _, ...before } = body;
    expect((await caller.client(`GET ${path}`)).body).toEqual(before);
  });

  it('that disables cancels pending deliveries for good; enabled again, it gets new events', async () => {
    const caller = await openCaller();
    const [old, other] = [await openReceiver(), await openReceiver()] as const;
    const { id, path } = await addEndpoint(caller, old.url);
    old.answerWith(500);
    const failed = await caller.pay();
    await old.next(about(failed));
    await untilFailed(id);

    const disabled = await caller.client(`POST ${path}`, { json: { status: 'disabled' } });
    expect(disabled.body).toMatchObject({ status: 'disabled', status_reason: expect.any(String) });
    expect(await statusesOf(id)).toEqual(['canceled']);
    const json = { status: 'enabled', url: other.url };
    const enabled = await caller.client(`POST ${path}`, { json });
    expect(enabled.body).toMatchObject({ ...json, status_reason: null });

    const payout = await caller.pay();
    await other.next(about(payout));
    await untilStatuses(id, ['canceled', 'delivered']);
    expect(old.received.filter(about(payout))).toEqual([]);
  });
});

/** A receiver that accepts webhooks that verify with its current secret, and refuses all others. */
async function openVerifier(secret: string) {
  const held = { secret };
  const signatures: number[] = [];
  let refused = 0;
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const body = await text(request);
    const headers = Object.fromEntries(
      Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
    );
    signatures.push(headers['webhook-signature']?.split(' ').length ?? 0);
    try {
      new Webhook(held.secret).verify(body, headers);
      response.writeHead(204).end();
    } catch {
      refused += 1;
      response.writeHead(400).end();
    }
  };
  const server = createServer((request, response) => void answer(request, response));
  const url = `http://127.0.0.1:${await listenOnAnyPort(server)}/`;
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return { url, held, signatures, refused: () => refused };
}

async function storedSecrets(endpointId: string): Promise<number> {
  const { count } = await system.database`
    select from webhook_secrets where endpoint_id = ${endpointId}`;
  return count;
}

describe('the secret of an endpoint', () => {
  it('is encrypted for its endpoint and number, and decrypted once for all deliveries', async () => {
    const caller = await openCaller();
    const { id, secret } = await addEndpoint(caller, 'http://127.0.0.1:9/');
    const other = await addEndpoint(caller, 'http://127.0.0.1:9/');
    const [row] = await system.database<{ sealed: Buffer; all: string }[]>`
      select s.sealed, (s.*, w.*)::text as all
        from webhook_secrets s join webhook_endpoints w on w.id = s.endpoint_id where w.id = ${id}`;
    expect(row?.sealed.includes(Buffer.from(secret))).toBe(false);
    expect(row?.all).not.toContain(secret.slice(6));
    expect(await webhookSecretsOf(system.worker, keyring, id)).toEqual([secret]);
    const opener = webhookSecretsOpener(system.worker, keyring);
    expect(await opener(id, 1, false)).toBe(await opener(id, 1, false));

    await system.database`delete from webhook_secrets where endpoint_id = ${other.id}`;
    await system.database`
      insert into webhook_secrets (endpoint_id, number, sealed)
      select ${other.id}, number, sealed from webhook_secrets where endpoint_id = ${id}`;
    await expect(webhookSecretsOf(system.worker, keyring, other.id)).rejects.toThrow();
  });

  it('is shown to a repeated request for an hour only', async () => {
    const { client } = await openCaller();
    const idempotencyKey = crypto.randomUUID();
    const create = () =>
      client('POST /v1/webhook_endpoints', {
        json: { url: 'http://127.0.0.1:9/', events: ['*'] },
        idempotencyKey,
      });
    const first = await create();
    expect(await create()).toMatchObject({ status: 201, body: first.body });
    // As long ago for the key as for the secret, which one transaction has written.
    await system.database`
      with aged as (update webhook_endpoints set secret_since = secret_since - interval '61 minutes'
                     where id = ${textOf(first, 'id')})
      update idempotency_keys set created_at = created_at - interval '61 minutes'
       where key = ${idempotencyKey}`;
    expect(await create()).toMatchObject({ status: 201, body: { ...first.body, secret: null } });
  });

  it('is shown to repeats of the request that made it, and to no earlier one', async () => {
    const { client } = await openCaller();
    const [made, rotated] = [crypto.randomUUID(), crypto.randomUUID()];
    const json = { url: 'http://127.0.0.1:9/', events: ['*'] };
    const create = () => client('POST /v1/webhook_endpoints', { json, idempotencyKey: made });
    const id = textOf(await create(), 'id');
    const rotate = () =>
      client(`POST /v1/webhook_endpoints/${id}/rotate_secret`, { idempotencyKey: rotated });
    const secret = textOf(await rotate(), 'secret');
    expect((await rotate()).body).toMatchObject({ secret });
    expect((await create()).body).toMatchObject({ secret: null });
  });

  it('can be rotated under load: a receiver that switches verifies every delivery', async () => {
    const caller = await openCaller();
    const receiver = await openVerifier('');
    const { id, path, secret } = await addEndpoint(caller, receiver.url);
    receiver.held.secret = secret;
    const paid: Promise<string>[] = [];
    // No faster than the machine settles: a growing queue would delay the last ones for too long.
    const timer = setInterval(() => {
      if (paid.length - receiver.signatures.length < 20) paid.push(caller.pay());
    }, 60);
    onTestFinished(() => clearInterval(timer));
    const delivered = async () =>
      (await statusesOf(id)).filter((one) => one === 'delivered').length;
    const untilDelivered = (count: number) =>
      expect.poll(delivered, { timeout: 30_000 }).toBeGreaterThanOrEqual(count);
    await untilDelivered(10);

    const rotated = await caller.client(`POST ${path}/rotate_secret`);
    expect(rotated).toMatchObject({ status: 200, body: { id } });
    expect(textOf(rotated, 'secret')).not.toBe(secret);
    const expiresInMs = Date.parse(textOf(rotated, 'previous_secret_expires_at')) - Date.now();
    expect(Math.round(expiresInMs / 3_600_000)).toBe(24);
    // Deliveries claimed before the rotation are signed with only the old secret. They end.
    const before = (await statusesOf(id)).length;
    await untilDelivered(before + 10);
    await expect
      .poll(async () => (await statusesOf(id)).slice(0, before))
      .toEqual(Array(before).fill('delivered'));
    receiver.held.secret = textOf(rotated, 'secret');
    await untilDelivered((await statusesOf(id)).length + 10);
    expect(receiver.refused()).toBe(0);
    expect(new Set(receiver.signatures)).toEqual(new Set([1, 2]));

    const revoked = await caller.client(`POST ${path}/revoke_old_secret`);
    expect(revoked.body).toMatchObject({ id, previous_secret_expires_at: null });
    clearInterval(timer);
    await Promise.all(paid);
    await untilDelivered(paid.length);
    const last = await caller.pay();
    await untilDelivered(paid.length + 1);
    expect([receiver.refused(), receiver.signatures.at(-1)]).toEqual([0, 1]);
    expect(last).toMatch(/^po_/);
    expect(await webhookSecretsOf(system.worker, keyring, id)).toEqual([receiver.held.secret]);
    expect(await storedSecrets(id)).toBe(1);
  });

  it('cannot be rotated again before the overlap ends, unless the rotation ends it', async () => {
    const caller = await openCaller();
    const { id, path, secret } = await addEndpoint(caller, 'http://127.0.0.1:9/');
    const rotate = (hours: string) =>
      caller.client(`POST ${path}/rotate_secret`, { form: { overlap_hours: hours } });
    const second = textOf(await rotate('1'), 'secret');
    expect(await rotate('1')).toMatchObject({
      status: 409,
      body: { code: 'secret_rotation_open' },
    });
    const now = () => webhookSecretsOf(system.worker, keyring, id);
    expect(await now()).toEqual([second, secret]);
    const third = await rotate('0');
    expect(third.body).toMatchObject({ previous_secret_expires_at: null });
    expect(await now()).toEqual([textOf(third, 'secret')]);
    expect(await storedSecrets(id)).toBe(1);
    await rotate('168');
    await system.database`
      update webhook_endpoints set previous_secret_until = now() where id = ${id}`;
    const fifth = await rotate('1');
    expect(fifth.status).toBe(200);
    expect((await now())[0]).toBe(textOf(fifth, 'secret'));
    expect(await storedSecrets(id)).toBe(2);
    expect(await rotate('169')).toMatchObject({ status: 400, body: { param: 'overlap_hours' } });
  });

  it('is deleted with its endpoint', async () => {
    const caller = await openCaller();
    const { id, path } = await addEndpoint(caller, 'http://127.0.0.1:9/');
    await caller.client(`DELETE ${path}`);
    expect(await storedSecrets(id)).toBe(0);
  });
});
