import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { type ApiClient, createClient, textOf } from '../fixtures/client.js';
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
  const json = { source_currency: 'USD', amount: 5_000, beneficiary: payee };
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

async function untilStatuses(endpointId: string, wanted: readonly string[]): Promise<void> {
  await expect.poll(() => statusesOf(endpointId), { timeout: 15_000 }).toEqual(wanted);
}

describe('an update', () => {
  it('changes what it names and nothing else, once for its key', async () => {
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
    // A replay changes nothing, and shows what is now.
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

  it('that disables cancels what is pending for good; enabled again, new events arrive', async () => {
    const caller = await openCaller();
    const [old, other] = [await openReceiver(), await openReceiver()] as const;
    const { id, path } = await addEndpoint(caller, old.url);
    old.answerWith(500);
    const failed = await caller.pay();
    await old.next(about(failed));

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
