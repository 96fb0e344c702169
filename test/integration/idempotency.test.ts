import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Part, sendSignal, startProcess } from '../../sandbox/stack/process.js';
import { routes } from '../../src/api/app.js';
import { exactlyOne, transaction } from '../../src/db/client.js';
import { eventually } from '../assertions/eventually.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { masterKey } from '../fixtures/keyring.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { fingerprintSecret, startSystem, type TestSystem } from '../servers/system.js';
import { temporalAddress } from '../servers/temporalAddress.js';
import { openSilentLine } from './silentLine.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

type Form = Readonly<Record<string, string>>;
type WriteRequest = { readonly request: string; readonly form?: Form };

/** A request that writes, and another one to the same route with another meaning. */
type Write = {
  readonly status: number;
  /** Creates the objects that the requests need. */
  readonly prepare: (
    client: ApiClient,
  ) => Promise<{ readonly original: WriteRequest; readonly other: WriteRequest }>;
  /** PostgreSQL's message once the request is stored: the end of a transaction unless stated. */
  readonly done?: 'COMMIT\0' | 'INSERT 0 1\0';
};

const form = (request: string, one: Form, other: Form): Write['prepare'] => {
  return () =>
    Promise.resolve({ original: { request, form: one }, other: { request, form: other } });
};

/** Requests to a route about one object: a separate request for each of two objects. */
const about = (
  make: (client: ApiClient) => Promise<string>,
  requestOf: (id: string) => string,
): Write['prepare'] => {
  return async (client) => ({
    original: { request: requestOf(await make(client)) },
    other: { request: requestOf(await make(client)) },
  });
};

const quote = { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' };
const endpoint = { url: 'http://127.0.0.1:9/hooks', 'events[]': 'payout.settled' };
const created = (request: string, fields: Form) => async (client: ApiClient) =>
  textOf(await client(request, { form: fields }), 'id');
const addBeneficiary = created('POST /v1/beneficiaries', beneficiary);
const addEndpoint = created('POST /v1/webhook_endpoints', endpoint);

/** The event of a batch whose only payout is refused. */
async function addEvent(client: ApiClient): Promise<string> {
  const batch = await client('POST /v1/batches', {
    json: { payouts: [{ source_currency: 'USD', amount: 10_000, beneficiary: 'bnf_none' }] },
  });
  return eventually('there is an event', 20_000, async () => {
    const { body } = await client(`GET /v1/events?batch=${textOf(batch, 'id')}`);
    return JSON.stringify(body).match(/evt_\w+/)?.[0];
  });
}

const payout = (stored: string, reference: string) => ({
  source_currency: 'USD',
  amount: '10000',
  beneficiary: stored,
  reference,
});

/** A payout that the bank does not answer, so that it can be canceled. */
async function addUnansweredPayout(client: ApiClient): Promise<string> {
  const fields = payout(await addBeneficiary(client), 'simulate: timeout then nothing');
  const id = textOf(await client('POST /v1/payouts', { form: fields }), 'id');
  await eventually(`${id} is submitted`, 20_000, async () => {
    const rows = await system.database`
      select from payouts where id = ${id} and submit_started_at is not null`;
    return rows.count === 1 ? rows : undefined;
  });
  return id;
}

/** A batch whose only payout the bank never answers, so that it stays open. */
async function addUnansweredBatch(client: ApiClient): Promise<string> {
  const item = payout(await addBeneficiary(client), 'simulate: timeout then nothing');
  const id = textOf(await client('POST /v1/batches', { json: { payouts: [item] } }), 'id');
  await eventually(`${id} is submitted`, 20_000, async () => {
    const rows = await system.database`
      select from payouts where batch_id = ${id} and submit_started_at is not null`;
    return rows.count === 1 ? rows : undefined;
  });
  return id;
}

/** Every route that writes. */
const writes: Readonly<Record<string, Write>> = {
  'POST /v1/quotes': {
    status: 201,
    prepare: form('POST /v1/quotes', quote, { ...quote, amount: '20000' }),
  },
  'POST /v1/payouts': {
    status: 201,
    prepare: async (client) => {
      const fields = payout(await addBeneficiary(client), 'simulate: never settle');
      const request = 'POST /v1/payouts';
      return {
        original: { request, form: fields },
        other: { request, form: { ...fields, amount: '20000' } },
      };
    },
  },
  'POST /v1/payouts/:id/cancel': {
    status: 200,
    prepare: about(addUnansweredPayout, (id) => `POST /v1/payouts/${id}/cancel`),
    done: 'INSERT 0 1\0',
  },
  'POST /v1/batches': {
    status: 202,
    prepare: form(
      'POST /v1/batches',
      {
        'payouts[0][source_currency]': 'USD',
        'payouts[0][amount]': '10000',
        'payouts[0][beneficiary]': 'bnf_none',
      },
      {
        'payouts[0][source_currency]': 'USD',
        'payouts[0][amount]': '20000',
        'payouts[0][beneficiary]': 'bnf_none',
      },
    ),
  },
  'POST /v1/batches/:id/cancel': {
    status: 200,
    prepare: about(addUnansweredBatch, (id) => `POST /v1/batches/${id}/cancel`),
    done: 'INSERT 0 1\0',
  },
  'POST /v1/beneficiaries': {
    status: 201,
    prepare: form('POST /v1/beneficiaries', beneficiary, { ...beneficiary, name: 'Ada Byron' }),
  },
  'POST /v1/beneficiaries/:id': {
    status: 200,
    prepare: async (client) => {
      const request = `POST /v1/beneficiaries/${await addBeneficiary(client)}`;
      return {
        original: { request, form: { name: 'Ada King' } },
        other: { request, form: { name: 'Ada Byron' } },
      };
    },
  },
  'DELETE /v1/beneficiaries/:id': {
    status: 200,
    prepare: about(addBeneficiary, (id) => `DELETE /v1/beneficiaries/${id}`),
  },
  'POST /v1/test/fund': {
    status: 201,
    prepare: form(
      'POST /v1/test/fund',
      { currency: 'USD', amount: '500' },
      { currency: 'USD', amount: '600' },
    ),
  },
  'POST /v1/webhook_endpoints': {
    status: 201,
    prepare: form('POST /v1/webhook_endpoints', endpoint, { ...endpoint, 'events[]': '*' }),
  },
  'POST /v1/webhook_endpoints/:id': {
    status: 200,
    prepare: about(addEndpoint, (id) => `POST /v1/webhook_endpoints/${id}`),
  },
  'POST /v1/webhook_endpoints/:id/verify': {
    status: 200,
    prepare: about(addEndpoint, (id) => `POST /v1/webhook_endpoints/${id}/verify`),
  },
  'POST /v1/webhook_endpoints/:id/rotate_secret': {
    status: 200,
    prepare: about(addEndpoint, (id) => `POST /v1/webhook_endpoints/${id}/rotate_secret`),
  },
  'POST /v1/webhook_endpoints/:id/revoke_old_secret': {
    status: 200,
    prepare: about(addEndpoint, (id) => `POST /v1/webhook_endpoints/${id}/revoke_old_secret`),
  },
  'POST /v1/webhook_endpoints/:id/test': {
    status: 200,
    prepare: about(addEndpoint, (id) => `POST /v1/webhook_endpoints/${id}/test`),
    done: 'INSERT 0 1\0',
  },
  'POST /v1/webhook_endpoints/:id/redeliver': {
    status: 200,
    prepare: async (client) => {
      const path = async () => `POST /v1/webhook_endpoints/${await addEndpoint(client)}/redeliver`;
      const fields = { since: '2026-11-21T12:00:00Z' };
      return {
        original: { request: await path(), form: fields },
        other: { request: await path(), form: fields },
      };
    },
  },
  'POST /v1/events/:id/redeliver': {
    status: 200,
    prepare: about(addEvent, (id) => `POST /v1/events/${id}/redeliver`),
  },
  'DELETE /v1/webhook_endpoints/:id': {
    status: 200,
    prepare: about(addEndpoint, (id) => `DELETE /v1/webhook_endpoints/${id}`),
  },
  'POST /v1/account': {
    status: 200,
    prepare: form('POST /v1/account', { api_version: '2026-11-15' }, { api_version: '2026-06-01' }),
  },
};

async function openCaller({ prepare }: Write) {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  return { accountId: account.id, apiKey, client, ...(await prepare(client)) };
}

const send = (client: ApiClient, { request, form: fields }: WriteRequest, idempotencyKey: string) =>
  client(request, fields === undefined ? { idempotencyKey } : { form: fields, idempotencyKey });

const isReplay = ({ headers }: ApiAnswer) => headers.get('idempotent-replayed') === 'true';

/** The subject of an answer, regardless of later changes to it. */
const subjectOf = ({ status, body }: ApiAnswer) => ({
  status,
  object: body['object'],
  id: body['id'],
  secret: body['secret'],
});

/** Everything of an account that a write may have changed, except what workflows do later. */
async function worldOf(accountId: string) {
  const { database } = system;
  // An order without an answer, in a canceled batch, is voided some seconds later.
  await eventually('every payout is decided, and canceled batches have ended', 20_000, async () => {
    const open = await database`
      select from payouts p left join batches b on b.id = p.batch_id
       where p.account_id = ${accountId}
         and (p.status = 'pending' or (p.status = 'processing' and b.canceled_at is not null))`;
    return open.count === 0 ? true : undefined;
  });
  const [row] = await database<{ keys: number }[]>`
    select (select api_version from accounts where id = ${accountId}) as version,
      (select count(*)::int from idempotency_keys where account_id = ${accountId}) as keys,
      (select count(*)::int from quotes where account_id = ${accountId}) as quotes,
      (select count(*)::int from payouts where account_id = ${accountId}) as payouts,
      (select count(*)::int from payouts
        where account_id = ${accountId} and status = 'canceled') as canceled,
      (select count(*)::int from batches where account_id = ${accountId}) as batches,
      (select array_agg((deleted_at is null, version)::text order by id) from beneficiaries
        where account_id = ${accountId}) as beneficiaries,
      (select array_agg(deleted_at is null order by id) from webhook_endpoints
        where account_id = ${accountId}) as endpoints,
      (select array_agg((p.currency, a.kind, p.amount_minor)::text order by p.id)
         from ledger_postings p join ledger_accounts a on a.id = p.ledger_account_id
        where a.account_id = ${accountId}) as postings`;
  return exactlyOne(row);
}

async function countKeys(accountId: string): Promise<number> {
  const rows = await system.database`
    select from idempotency_keys where account_id = ${accountId}`;
  return rows.count;
}

it('every route that writes is covered here', () => {
  const all = routes
    .filter(({ method }) => method !== 'get')
    .map(({ method, path }) => `${method.toUpperCase()} ${path}`);
  expect(Object.keys(writes).sort()).toEqual(all.sort());
});

// Many of these wait for seconds, as the bank does not answer, so some run at the same time.
describe.concurrent.each(Object.entries(writes))('with one key %s', (_route, write) => {
  it('has the effect of one request when sent 20 times at once', async () => {
    const once = await openCaller(write);
    await send(once.client, once.original, 'a-key');
    const often = await openCaller(write);
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => send(often.client, often.original, 'a-key')),
    );
    const [first, ...repeats] = answers.toSorted(
      (a, b) => Number(isReplay(a)) - Number(isReplay(b)),
    );
    expect(exactlyOne(first).status).toBe(write.status);
    expect(answers.filter(isReplay)).toHaveLength(19);
    for (const repeat of repeats) expect(subjectOf(repeat)).toEqual(subjectOf(exactlyOne(first)));
    expect(await worldOf(often.accountId)).toEqual(await worldOf(once.accountId));
  });

  it('is the same request if the key is sent in quotes', async () => {
    const { client, original, accountId } = await openCaller(write);
    const first = await send(client, original, 'a-key');
    const before = await worldOf(accountId);
    const quoted = await send(client, original, '"a-key"');
    expect([isReplay(first), isReplay(quoted)]).toEqual([false, true]);
    expect(subjectOf(quoted)).toEqual(subjectOf(first));
    expect(await worldOf(accountId)).toEqual(before);
  });

  it('is refused for a different request, and the answer says what differs', async () => {
    const { client, original, other, accountId } = await openCaller(write);
    const first = await send(client, original, 'a-key');
    const before = await worldOf(accountId);
    const second = await send(client, other, 'a-key');
    expect(second.status).toBe(422);
    expect(second.body['code']).toBe('idempotency_key_reused');
    if (other.request === original.request) {
      const names = Object.entries(other.form ?? {})
        .filter(([name, value]) => original.form?.[name] !== value)
        // The items of a batch are named as a whole, those of a list one by one.
        .map(([name]) => name.replace(/^(payouts\[0\]).*/, '$1').replace('[]', '[0]'));
      expect([second.body['param']]).toEqual(names);
    } else {
      expect(second.body).toMatchObject({
        received: other.request,
        expected: expect.stringContaining(original.request),
      });
    }
    expect(isReplay(second)).toBe(false);
    expect(subjectOf(await send(client, original, 'a-key'))).toEqual(subjectOf(first));
    expect(await worldOf(accountId)).toEqual(before);
  });

  it('carries out one of two different requests sent at once', async () => {
    const { client, original, other, accountId } = await openCaller(write);
    const answers = await Promise.all([original, other].map((one) => send(client, one, 'a-key')));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([write.status, 422]));
    expect(await countKeys(accountId)).toBe(1);
  });

  it('is a separate request for each of two accounts', async () => {
    const callers = [await openCaller(write), await openCaller(write)];
    for (const { client, original } of callers) {
      const answer = await send(client, original, 'a-key');
      expect(answer.status).toBe(write.status);
      expect(isReplay(answer)).toBe(false);
    }
  });
});

it('a payout with null for optional parameters is the same request as one without', async () => {
  const { client } = system;
  const sent = payout(await addBeneficiary(client), 'simulate: never settle');
  const send = (json: object) => {
    const raw = { body: JSON.stringify(json), contentType: 'application/json' };
    return client('POST /v1/payouts', { raw, idempotencyKey: 'with-nulls' });
  };
  const nulls = { quote: null, destination_currency: null, metadata: null, retry_of: null };
  const first = await send({ ...sent, ...nulls });
  expect(first.status).toBe(201);
  const again = await send(sent);
  expect(again.headers.get('idempotent-replayed')).toBe('true');
  expect(again.body['id']).toBe(first.body['id']);
  expect(await send({ ...sent, reference: null })).toMatchObject({
    status: 422,
    body: { code: 'idempotency_key_reused', param: 'reference', errors: { length: 1 } },
  });
});

describe('with the idempotency key of a beneficiary', () => {
  const american = {
    ...{ type: 'business', name: 'Babbage Engines', country: 'US', currency: 'USD' },
    ...{ account_number: '000123456789', routing_number: '021000021' },
  };
  const add = (client: ApiClient, form: Form) =>
    client('POST /v1/beneficiaries', { form, idempotencyKey: 'a-key' });

  it('its account details cannot be guessed one by one', async () => {
    const { apiKey } = await createTestAccount(system.database);
    const client = createClient(system.apiUrl, apiKey);
    expect((await add(client, american)).status).toBe(201);
    const guesses = [
      { account_number: '000123456780' },
      { routing_number: '026009593' },
      { account_number: '000123456780', routing_number: '026009593' },
      { account_type: 'savings' },
    ];
    const answers: unknown[] = [];
    for (const guess of guesses) {
      const { status, body } = await add(client, { ...american, ...guess });
      expect(status).toBe(422);
      const { request_id: _, ...rest } = body;
      answers.push(rest);
    }
    // The answer must be the same, whichever guess is right.
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(JSON.stringify(answers)).not.toMatch(/routing|account_number|account_type|\d{9}/);
    const named = await add(client, { ...american, name: 'Ada', account_number: '000123456780' });
    expect(named.body).not.toHaveProperty('param');
    expect(named.body).toMatchObject({
      errors: { length: 1 },
      detail: expect.stringMatching(/these differ: (account details, )?name/),
    });
  });
});

it('requests that wait for a key use only some connections, so others go on', async () => {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  const ask = () => client('POST /v1/quotes', { form: quote, idempotencyKey: 'a-key' });
  const waiting = async () => {
    const [row] = await system.database<{ count: number }[]>`
      select count(*)::int from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock'`;
    return row?.count ?? 0;
  };
  const answers = await transaction(system.database, async (sql) => {
    await sql`
      insert into idempotency_keys (account_id, key, route, fingerprints, object_id)
      values (${account.id}, 'a-key', 'POST /v1/quotes', '{}', 'qt_0')`;
    const sending = Array.from({ length: 30 }, ask);
    await eventually('six requests wait for the key', 10_000, async () =>
      (await waiting()) === 6 ? true : undefined,
    );
    // In order of arrival this request would come after all of those.
    expect(
      (await createClient(system.apiUrl, system.account.apiKey)('GET /v1/account')).status,
    ).toBe(200);
    expect(await waiting()).toBe(6);
    return sending;
  });
  // The key was used for another request in the meantime.
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(
    Array.from({ length: 30 }, () => 422),
  );
});

it('a key of any route is refused on every other route without any effect', async () => {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  const all: { readonly route: string; readonly original: WriteRequest }[] = [];
  for (const [route, { prepare }] of Object.entries(writes)) {
    all.push({ route, original: (await prepare(client)).original });
  }
  for (const { route, original } of all) {
    expect(isReplay(await send(client, original, `key-of ${route}`.replaceAll(' ', '-')))).toBe(
      false,
    );
  }
  const before = await worldOf(account.id);
  for (const owner of all) {
    for (const { original } of all.filter(({ route }) => route !== owner.route)) {
      const answer = await send(client, original, `key-of ${owner.route}`.replaceAll(' ', '-'));
      expect(answer.status).toBe(422);
      expect(answer.body).toMatchObject({
        code: 'idempotency_key_reused',
        expected: expect.stringContaining(owner.original.request),
        received: original.request,
      });
    }
  }
  expect(await worldOf(account.id)).toEqual(before);
});

/** Starts an API process on the system's database. */
function startApi(databaseUrl: string): Promise<Part> {
  return startProcess({
    name: 'api',
    command: process.execPath,
    args: [fileURLToPath(new URL('../../dist/src/api/main.js', import.meta.url))],
    env: {
      ...process.env,
      DATABASE_URL: databaseUrl,
      TEMPORAL_ADDRESS: temporalAddress(),
      SANDBOX_BANK_CALLBACK_SECRET: system.bank.callbackSecret,
      WEBHOOKS_ALLOW_INSECURE: 'true',
      FINGERPRINT_SECRET: fingerprintSecret,
      MASTER_KEY: masterKey,
      API_PORT: '0',
      // Each write keeps its connection while its answer is held back.
      DATABASE_POOL_SIZE: '32',
    },
    ipc: true,
    ready: { line: (line) => /"ready":"(http[^"]+)"/.exec(line)?.[1] },
    readyTimeoutMs: 20_000,
    onLog: () => undefined,
  });
}

describe('when the API dies after the database has committed and before it has answered', () => {
  const callers = new Map<string, Awaited<ReturnType<typeof openCaller>>>();
  let next: Part;

  beforeAll(async () => {
    for (const [route, write] of Object.entries(writes)) {
      callers.set(route, await openCaller(write));
    }
    const line = await openSilentLine(system.urls.api);
    const dying = await startApi(line.url);
    const lost: Promise<string>[] = [];
    // The write that binds its key without a transaction comes last: its message also occurs in the others.
    for (const message of ['COMMIT\0', 'INSERT 0 1\0'] as const) {
      const group = Object.entries(writes).filter(([, { done = 'COMMIT\0' }]) => done === message);
      const areDone = line.keepBack(message, group.length);
      for (const [route] of group) {
        const { apiKey, original } = exactlyOne(callers.get(route));
        const sending = send(createClient(dying.announced, apiKey), original, 'a-key');
        lost.push(
          sending.then(
            ({ status }) => `${route} was answered ${status}`,
            () => 'lost',
          ),
        );
      }
      await areDone;
    }
    sendSignal(dying.pid, 'SIGKILL');
    await dying.exited;
    expect(await Promise.all(lost)).toEqual(lost.map(() => 'lost'));
    await line.close();
    next = await startApi(system.urls.api);
  });
  afterAll(() => next?.stop());

  it.concurrent.each(Object.entries(writes))(
    '%s takes effect once when it is repeated',
    async (route, write) => {
      const once = await openCaller(write);
      const expected = await send(once.client, once.original, 'a-key');
      const { accountId, apiKey, original } = exactlyOne(callers.get(route));
      expect(await countKeys(accountId)).toBe(1);
      const repeat = () => send(createClient(next.announced, apiKey), original, 'a-key');
      const answer = await repeat();
      expect(answer.status).toBe(expected.status);
      expect(isReplay(answer)).toBe(true);
      expect(subjectOf(await repeat())).toEqual(subjectOf(answer));
      expect(await worldOf(accountId)).toEqual(await worldOf(once.accountId));
    },
  );
});

describe('a key that another request holds', () => {
  it.each([
    ['POST /v1/quotes', { form: quote }],
    ['POST /v1/payouts', { form: payout('bnf_none', 'Invoice') }],
    ['POST /v1/batches', { json: { payouts: [payout('bnf_none', 'Invoice')] } }],
  ])('makes %s wait for a moment, then asks it to try again', async (request, body) => {
    const key = `held-${request.split('/').at(-1)}`;
    await transaction(system.database, async (sql) => {
      await sql`
        insert into idempotency_keys (account_id, key, route, fingerprints, object_id)
        values (${system.account.account.id}, ${key}, ${request}, '{}', 'none')`;
      const {
        status,
        body: problem,
        headers,
      } = await system.client(request, { ...body, idempotencyKey: key });
      expect([status, problem['code']]).toEqual([409, 'request_in_progress']);
      expect(headers.get('Retry-After')).toBe('1');
    });
  });
});

it('a key can be reused after its request named an object that does not exist', async () => {
  const id = await addBeneficiary(system.client);
  const idempotencyKey = 'a-name-mistyped';
  const wrong = await system.client('DELETE /v1/beneficiaries/bnf_0typo', { idempotencyKey });
  expect(wrong.status).toBe(404);
  const right = await system.client(`DELETE /v1/beneficiaries/${id}`, { idempotencyKey });
  expect(right.status).toBe(200);
});
