import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { routes } from '../../src/api/app.js';
import { type IdKind, newId } from '../../src/db/id.js';
import { eventually } from '../assertions/eventually.js';
import { startReceiver } from '../fakes/receiver.js';
import {
  type ApiAnswer,
  type ApiClient,
  createClient,
  textOf,
  untilStatus,
} from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

/** One ID of each kind that an account owns. */
type Owned = Readonly<
  Record<
    'quote' | 'beneficiary' | 'payout' | 'batch' | 'item' | 'event' | 'endpoint' | 'transaction',
    string
  >
>;

let system: TestSystem;
let owner: ApiClient;
let stranger: ApiClient;
let foreign: Owned;
let own: Owned;
let closeReceiver: () => Promise<void>;

beforeAll(async () => {
  system = await startSystem();
  const receiver = await startReceiver();
  closeReceiver = receiver.close;
  owner = system.client;
  const other = await createTestAccount(system.database);
  stranger = createClient(system.apiUrl, other.apiKey);
  [foreign, own] = await Promise.all([
    acquire(owner, receiver.url),
    acquire(stranger, receiver.url),
  ]);
});
afterAll(async () => {
  await closeReceiver();
  await system.stop();
});

const list = z.object({ data: z.array(z.looseObject({ id: z.string() })).min(1) });
const firstOf = async (client: ApiClient, path: string) =>
  list.parse((await client(`GET ${path}`)).body).data[0]?.id ?? '';

/** Creates one object of every kind that has an ID. */
async function acquire(client: ApiClient, receiverUrl: string): Promise<Owned> {
  const endpoint = await client('POST /v1/webhook_endpoints', {
    json: { url: receiverUrl, events: ['*'] },
  });
  const quote = await client('POST /v1/quotes', {
    json: { source_currency: 'USD', destination_currency: 'EUR', amount: 5_000 },
  });
  const payee = await client('POST /v1/beneficiaries', { json: beneficiary });
  const item = { beneficiary: textOf(payee, 'id'), source_currency: 'USD', amount: 5_000 };
  const payout = await client('POST /v1/payouts', { json: item });
  const batch = await client('POST /v1/batches', { json: { payouts: [item, item] } });
  await untilStatus(client, textOf(payout, 'id'), 'settled');
  await eventually('the batch is completed', 20_000, async () =>
    (await client(`GET /v1/batches/${textOf(batch, 'id')}`)).body['status'] === 'completed'
      ? true
      : undefined,
  );
  return {
    endpoint: textOf(endpoint, 'id'),
    quote: textOf(quote, 'id'),
    beneficiary: textOf(payee, 'id'),
    payout: textOf(payout, 'id'),
    batch: textOf(batch, 'id'),
    item: await firstOf(client, `/v1/batches/${textOf(batch, 'id')}/payouts`),
    event: await firstOf(client, '/v1/events'),
    transaction: await firstOf(client, '/v1/balance_transactions'),
  };
}

/** An unused ID of this kind. */
function absent(kind: keyof Owned): string {
  if (kind === 'transaction') return 'txn_999999999999999999';
  const kinds = {
    quote: 'quote',
    beneficiary: 'beneficiary',
    payout: 'payout',
    batch: 'batch',
    item: 'payout',
    event: 'event',
    endpoint: 'webhookEndpoint',
  } as const satisfies Record<string, IdKind>;
  return newId(kinds[kind]);
}

/** Headers that change between requests and reveal nothing. */
const changing = ['request-id', 'date', 'ratelimit', 'ratelimit-policy', 'content-length'];

/** An answer without its per-request values and without the requested ID. */
function essence(answer: ApiAnswer, id: string) {
  const plain = (text: string) =>
    text
      .replaceAll(id, '<asked>')
      .replaceAll(/\b(po|bat|req)_[0-9a-z]{26}\b/g, '<new>')
      .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<time>');
  const headers = [...answer.headers].filter(([name]) => !changing.includes(name));
  return {
    status: answer.status,
    headers: headers.map(([name, value]) => [name, plain(value)]),
    body: plain(JSON.stringify(answer.body)),
  };
}

/** The routes with an ID in their path, and the kind of that ID. */
const paths: Readonly<Record<string, keyof Owned>> = {
  'get /v1/quotes/:id': 'quote',
  'get /v1/quotes/:id/calculation': 'quote',
  'get /v1/payouts/:id': 'payout',
  'get /v1/payouts/:id/calculation': 'payout',
  'post /v1/payouts/:id/cancel': 'payout',
  'get /v1/batches/:id': 'batch',
  'get /v1/batches/:id/payouts': 'batch',
  'post /v1/batches/:id/cancel': 'batch',
  'get /v1/beneficiaries/:id': 'beneficiary',
  'post /v1/beneficiaries/:id': 'beneficiary',
  'delete /v1/beneficiaries/:id': 'beneficiary',
  'get /v1/webhook_endpoints/:id': 'endpoint',
  'post /v1/webhook_endpoints/:id': 'endpoint',
  'post /v1/webhook_endpoints/:id/rotate_secret': 'endpoint',
  'post /v1/webhook_endpoints/:id/revoke_old_secret': 'endpoint',
  'post /v1/webhook_endpoints/:id/verify': 'endpoint',
  'post /v1/webhook_endpoints/:id/test': 'endpoint',
  'delete /v1/webhook_endpoints/:id': 'endpoint',
  'get /v1/webhook_endpoints/:id/deliveries': 'endpoint',
  'get /v1/events/:id': 'event',
  'get /v1/events/:id/deliveries': 'event',
  'post /v1/events/:id/redeliver': 'event',
  'post /v1/webhook_endpoints/:id/redeliver': 'endpoint',
};

/** Required bodies. */
const bodies: Readonly<Record<string, object>> = {
  'post /v1/webhook_endpoints/:id/redeliver': { since: '2026-11-21T12:00:00Z' },
};

type Sent = { readonly request: string; readonly json?: unknown };

/** Every parameter that takes an ID, by operation, with a request that sends it. */
const params: Readonly<Record<string, readonly [keyof Owned, (id: string) => Sent]>> = {
  ...queries('listPayouts', '/v1/payouts', {
    starting_after: 'payout',
    ending_before: 'payout',
    beneficiary: 'beneficiary',
    batch: 'batch',
  }),
  ...queries('listBatches', '/v1/batches', { starting_after: 'batch', ending_before: 'batch' }),
  'listBatchPayouts starting_after': [
    'item',
    (id) => ({ request: `GET /v1/batches/${own.batch}/payouts?starting_after=${id}` }),
  ],
  ...queries('listBeneficiaries', '/v1/beneficiaries', {
    starting_after: 'beneficiary',
    ending_before: 'beneficiary',
  }),
  ...queries('listBalanceTransactions', '/v1/balance_transactions', {
    starting_after: 'transaction',
    ending_before: 'transaction',
    payout: 'payout',
  }),
  ...queries('listWebhookEndpoints', '/v1/webhook_endpoints', {
    starting_after: 'endpoint',
    ending_before: 'endpoint',
  }),
  'listEndpointDeliveries starting_after': [
    'event',
    (id) => ({
      request: `GET /v1/webhook_endpoints/${own.endpoint}/deliveries?starting_after=${id}`,
    }),
  ],
  ...queries('listEvents', '/v1/events', {
    starting_after: 'event',
    ending_before: 'event',
    payout: 'payout',
    batch: 'batch',
  }),
  // A payout is stored with the IDs in its request, so these come after the lists.
  'createPayout quote': [
    'quote',
    (quote) => ({
      request: 'POST /v1/payouts',
      json: { quote, beneficiary: own.beneficiary },
    }),
  ],
  'createPayout beneficiary': [
    'beneficiary',
    (beneficiary) => ({
      request: 'POST /v1/payouts',
      json: { beneficiary, source_currency: 'USD', amount: 5_000 },
    }),
  ],
  'createBatch quote': [
    'quote',
    (quote) => ({
      request: 'POST /v1/batches',
      json: { validate_only: true, payouts: [{ quote, beneficiary: own.beneficiary }] },
    }),
  ],
  'createBatch beneficiary': [
    'beneficiary',
    (beneficiary) => ({
      request: 'POST /v1/batches',
      json: {
        validate_only: true,
        payouts: [{ beneficiary, source_currency: 'USD', amount: 5_000 }],
      },
    }),
  ],
};

function queries(operation: string, path: string, kinds: Readonly<Record<string, keyof Owned>>) {
  return Object.fromEntries(
    Object.entries(kinds).map(([name, kind]) => [
      `${operation} ${name}`,
      [kind, (id: string) => ({ request: `GET ${path}?${name}=${id}` })] as const,
    ]),
  );
}

const idNames = new Set([
  'quote',
  'beneficiary',
  'batch',
  'payout',
  'starting_after',
  'ending_before',
]);

describe('another account’s id', () => {
  it('is tested on every route and in every parameter that takes an id', () => {
    const withId = routes.filter(({ path }) => path.includes(':id'));
    expect(Object.keys(paths).sort()).toEqual(
      withId.map((each) => `${each.method} ${each.path}`).sort(),
    );
    // Rates belong to no account.
    const owning = routes.filter(({ operationId }) => operationId !== 'listPastRates');
    const named = owning.flatMap(({ operationId, params: schema }) => {
      const shape = schema?.shape ?? {};
      const item =
        shape['payouts'] instanceof z.ZodArray ? shape['payouts'].def.element : undefined;
      const names = [
        ...Object.keys(shape),
        ...(item instanceof z.ZodObject ? Object.keys(item.shape) : []),
      ];
      return names.filter((name) => idNames.has(name)).map((name) => `${operationId} ${name}`);
    });
    expect(Object.keys(params).sort()).toEqual(named.sort());
  });

  it.each(Object.entries(paths))(
    'in %s is answered like one that does not exist',
    async (name, kind) => {
      const [method = '', path = ''] = name.split(' ');
      const ask = (client: ApiClient, id: string, idempotencyKey?: string) =>
        client(`${method.toUpperCase()} ${path.replace(':id', id)}`, {
          ...(bodies[name] === undefined ? {} : { json: bodies[name] }),
          ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
        });
      const before = await reads(kind);
      const none = absent(kind);
      const keys = [undefined, `bola-${crypto.randomUUID()}`];
      for (const key of keys) {
        const [foreignAnswer, missing] = [
          await ask(stranger, foreign[kind], key),
          await ask(stranger, none, key && `${key}-none`),
        ];
        expect(foreignAnswer.status).toBe(404);
        expect(essence(foreignAnswer, foreign[kind])).toEqual(essence(missing, none));
      }
      // The object exists and has not changed.
      expect(before.map(({ status }) => status)).toEqual(before.map(() => 200));
      expect((await reads(kind)).map(({ body }) => body)).toEqual(before.map(({ body }) => body));
    },
  );

  it.each(Object.keys(params))('in %s is answered like one that does not exist', async (name) => {
    const [kind, send] = params[name] ?? [];
    if (kind === undefined || send === undefined)
      throw new Error(`No request is defined for ${name}.`);
    const none = absent(kind);
    const ask = ({ request, json }: Sent) =>
      stranger(request, json === undefined ? {} : { json, idempotencyKey: crypto.randomUUID() });
    const foreignAnswer = await ask(send(foreign[kind]));
    expect(essence(foreignAnswer, foreign[kind])).toEqual(essence(await ask(send(none)), none));
    // The same request with the caller's own ID has another answer.
    const ownAnswer = essence(await ask(send(own[kind])), own[kind]);
    expect(ownAnswer).not.toEqual(essence(foreignAnswer, foreign[kind]));
  });

  it('in the items of a batch fails them like one that does not exist', async () => {
    const carry = async (beneficiary: string) => {
      const payouts = [{ beneficiary, source_currency: 'USD', amount: 5_000 }];
      const batch = textOf(await stranger('POST /v1/batches', { json: { payouts } }), 'id');
      const path = `GET /v1/batches/${batch}`;
      const done = await eventually('the batch is completed', 20_000, async () => {
        const answer = await stranger(path);
        return answer.body['status'] === 'completed' ? answer : undefined;
      });
      const items = await stranger(`${path}/payouts?limit=1`);
      return [essence(done, beneficiary), essence(items, beneficiary)];
    };
    expect(await carry(foreign.beneficiary)).toEqual(await carry(absent('beneficiary')));
  });

  it('as an idempotency key makes a separate request', async () => {
    const json = { source_currency: 'USD', destination_currency: 'EUR', amount: 7_000 };
    const idempotencyKey = `shared-${crypto.randomUUID()}`;
    const foreignAnswer = await owner('POST /v1/quotes', { json, idempotencyKey });
    const ownAnswer = await stranger('POST /v1/quotes', {
      json: { ...json, amount: 8_000 },
      idempotencyKey,
    });
    expect(ownAnswer.status).toBe(201);
    expect(ownAnswer.headers.get('idempotent-replayed')).toBeNull();
    expect(textOf(ownAnswer, 'id')).not.toBe(textOf(foreignAnswer, 'id'));
  });
});

/** The answers that the owner of an object gets. */
function reads(kind: keyof Owned): Promise<readonly ApiAnswer[]> {
  const names = Object.entries(paths).filter(
    ([name, each]) => each === kind && name.startsWith('get '),
  );
  return Promise.all(
    names.map(([name]) => owner(`GET ${(name.split(' ')[1] ?? '').replace(':id', foreign[kind])}`)),
  );
}
