import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { newId } from '../../src/db/id.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { addApiKey, createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
/** Another account, with a separate quote and beneficiary. */
let stranger: ApiClient;
/** The beneficiaries of the system's account. */
let german: string;
let american: string;

beforeAll(async () => {
  system = await startSystem();
  const { apiKey } = await createTestAccount(system.database);
  stranger = createClient(system.apiUrl, apiKey);
  german = await addGerman(system.client);
  const added = await system.client('POST /v1/beneficiaries', {
    form: {
      type: 'business',
      name: 'Babbage Engines',
      country: 'US',
      currency: 'USD',
      account_number: '000123456789',
      routing_number: '021000021',
    },
  });
  american = textOf(added, 'id');
});
afterAll(() => system.stop());

async function addGerman(client: ApiClient): Promise<string> {
  const form = { type: 'individual', name: 'Ada', country: 'DE', currency: 'EUR' };
  const added = await client('POST /v1/beneficiaries', {
    form: { ...form, iban: 'DE89370400440532013000' },
  });
  return textOf(added, 'id');
}

async function addQuote(client: ApiClient, amount = '10000'): Promise<string> {
  const form = { source_currency: 'USD', destination_currency: 'EUR', amount };
  return textOf(await client('POST /v1/quotes', { form }), 'id');
}

const live = (amount: string) => ({ source_currency: 'USD', amount });

/** A payout that will be refused, and how to undo the cause afterwards. */
type Plan = {
  readonly form: Readonly<Record<string, string>>;
  readonly remedy?: () => Promise<unknown>;
};

type Case = readonly [
  name: string,
  expected: { readonly status: number; readonly code: string; readonly param?: string },
  plan: () => Promise<Plan>,
];

const refusedQuote = (code: string) => ({ status: 422, code, param: 'quote' });
it('a refusal shows the available balance only to a key that may read it', async () => {
  const { account } = system.account;
  const sender = await addApiKey(system.database, account.id, { scopes: ['payouts:create'] });
  const form = { ...live('99999999'), beneficiary: american, destination_currency: 'USD' };
  const idempotencyKey = 'too-much';
  const send = (client: ApiClient) => client('POST /v1/payouts', { form, idempotencyKey });
  const hidden = await send(createClient(system.apiUrl, sender));
  expect(hidden).toMatchObject({
    status: 422,
    body: { code: 'insufficient_funds', expected: 'at most the available balance' },
  });
  expect(JSON.stringify(hidden.body)).not.toMatch(/at most \d/);
  // A replay with a key that may read shows the balance, as the payout stores the full refusal.
  const shown = await send(system.client);
  expect(shown.status).toBe(422);
  expect(textOf(shown, 'expected')).toMatch(/^at most \d+\.\d\d USD, the available balance$/);
});

it('a refused retry shows the payout’s status only to a key that may read it', async () => {
  const { account } = system.account;
  const sender = await addApiKey(system.database, account.id, { scopes: ['payouts:create'] });
  const reference = 'simulate: never settle';
  const form = { ...live('10000'), beneficiary: american, destination_currency: 'USD' };
  const first = await system.client('POST /v1/payouts', { form: { ...form, reference } });
  const retry = {
    form: { ...form, retry_of: textOf(first, 'id') },
    idempotencyKey: 'retried-by-two',
  };
  const shown = await system.client('POST /v1/payouts', retry);
  expect(textOf(shown, 'detail')).toMatch(/ is (processing|sent)/);
  // A replay of the answer that the other key got.
  const hidden = await createClient(system.apiUrl, sender)('POST /v1/payouts', retry);
  expect(hidden).toMatchObject({ status: 422, body: { code: 'retry_refused' } });
  expect(textOf(hidden, 'detail')).not.toMatch(/ is (processing|sent)/);
});

const noBeneficiary = { status: 422, code: 'beneficiary_not_found', param: 'beneficiary' };

const cases: readonly Case[] = [
  [
    'a quote that has expired',
    refusedQuote('quote_expired'),
    async () => {
      const quote = await addQuote(system.client);
      await system.database`
        update quotes set created_at = created_at - interval '30 seconds',
                          expires_at = expires_at - interval '30 seconds' where id = ${quote}`;
      return { form: { quote, beneficiary: german } };
    },
  ],
  [
    'a quote that was used',
    refusedQuote('quote_used'),
    async () => {
      const quote = await addQuote(system.client);
      const first = await system.client('POST /v1/payouts', {
        form: { quote, beneficiary: german },
      });
      expect(first.status).toBe(201);
      // The first payout must be final before balances are compared.
      await system.temporal.workflow.getHandle(textOf(first, 'id')).result();
      return { form: { quote, beneficiary: german } };
    },
  ],
  [
    'the quote of another account',
    refusedQuote('quote_not_found'),
    async () => ({ form: { quote: await addQuote(stranger), beneficiary: german } }),
  ],
  [
    'a quote that is not there',
    refusedQuote('quote_not_found'),
    async () => ({ form: { quote: newId('quote'), beneficiary: german } }),
  ],
  [
    'the beneficiary of another account',
    noBeneficiary,
    async () => ({
      form: { quote: await addQuote(system.client), beneficiary: await addGerman(stranger) },
    }),
  ],
  [
    'a beneficiary that is not there',
    noBeneficiary,
    async () => ({
      form: { quote: await addQuote(system.client), beneficiary: newId('beneficiary') },
    }),
  ],
  [
    'a beneficiary that is not there, at the live rate',
    noBeneficiary,
    async () => ({ form: { ...live('10000'), beneficiary: newId('beneficiary') } }),
  ],
  [
    'a beneficiary that was deleted',
    noBeneficiary,
    async () => {
      const beneficiary = await addGerman(system.client);
      const deleted = await system.client(`DELETE /v1/beneficiaries/${beneficiary}`);
      expect(deleted.body).toMatchObject({ deleted: true });
      return { form: { quote: await addQuote(system.client), beneficiary } };
    },
  ],
  [
    'a quote in another currency than the beneficiary receives',
    refusedQuote('currency_mismatch'),
    async () => ({ form: { quote: await addQuote(system.client), beneficiary: american } }),
  ],
  [
    'a live rate in another currency than the beneficiary receives',
    { status: 422, code: 'currency_mismatch', param: 'destination_currency' },
    async () => ({
      form: { ...live('10000'), destination_currency: 'EUR', beneficiary: american },
    }),
  ],
  [
    'a quote above the balance',
    refusedQuote('insufficient_funds'),
    async () => ({
      form: { quote: await addQuote(system.client, '2000000'), beneficiary: german },
      remedy: () =>
        system.client('POST /v1/test/fund', { form: { currency: 'USD', amount: '5000000' } }),
    }),
  ],
  [
    'an amount above the balance',
    { status: 422, code: 'insufficient_funds', param: 'amount' },
    async () => ({ form: { ...live('90000000'), beneficiary: german } }),
  ],
  [
    'an amount in a currency that the account does not have',
    { status: 422, code: 'insufficient_funds', param: 'amount' },
    async () => ({ form: { source_currency: 'CHF', amount: '10000', beneficiary: german } }),
  ],
  [
    'a currency that is not served',
    { status: 422, code: 'currency_unsupported', param: 'source_currency' },
    async () => ({ form: { source_currency: 'XAF', amount: '10000', beneficiary: german } }),
  ],
  [
    'an amount that is too small',
    { status: 422, code: 'amount_too_small', param: 'amount' },
    async () => ({ form: { ...live('100'), beneficiary: german } }),
  ],
  [
    'an amount that is too large',
    { status: 422, code: 'amount_too_large', param: 'amount' },
    async () => ({ form: { ...live('100000001'), beneficiary: german } }),
  ],
  [
    'a rate that is too old',
    { status: 503, code: 'rate_unavailable' },
    async () => {
      const { database } = system;
      const remedy = async () => {
        await database`update current_rates set as_of = now()`;
      };
      // Also when the test fails, because the other tests need rates.
      onTestFinished(remedy);
      await database`update current_rates set as_of = now() - interval '2 days'`;
      return { form: { ...live('10000'), beneficiary: german }, remedy };
    },
  ],
];

const problem = z.object({
  code: z.string(),
  param: z.string().optional(),
  expected: z.string().min(1),
  detail: z.string().min(1),
  payout: z.string(),
});
const eventList = z.object({
  data: z.array(z.object({ type: z.string(), data: z.object({ id: z.string() }).loose() })),
  has_more: z.boolean(),
});
const balanceList = z.object({ data: z.array(z.unknown()) });

async function balances(): Promise<unknown> {
  return balanceList.parse((await system.client('GET /v1/balances')).body).data;
}

/** The rows that belong to a payout. */
async function tracesOf(payout: string) {
  const [row] = await system.database`
    select (select count(*)::int from ledger_entries where payout_id = ${payout}) as entries,
           (select count(*)::int from quotes where used_by = ${payout}) as quotes,
           (select count(*)::int from payouts) as payouts`;
  return row;
}

function answeredOf({ status, body }: ApiAnswer) {
  const { request_id: _differs, ...refusal } = body;
  return { status, refusal };
}

describe('a payout is refused, and no money moves, for', () => {
  it.each(cases)('%s', async (_name, expected, makePlan) => {
    const { client, temporal, bank } = system;
    const { form, remedy } = await makePlan();
    const before = await balances();
    const idempotencyKey = crypto.randomUUID();

    const refused = await client('POST /v1/payouts', { form, idempotencyKey });
    const refusal = problem.parse(refused.body);
    expect({ status: refused.status, code: refusal.code, param: refusal.param }).toEqual({
      param: undefined,
      ...expected,
    });
    expect(refused.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(refused.headers.has('idempotent-replayed')).toBe(false);
    // The refusal is stored with the payout, so waiting and repeating does not help.
    expect(refused.headers.has('retry-after')).toBe(false);

    // Once its workflow has ended, nothing can happen to the payout any more.
    await expect(temporal.workflow.getHandle(refusal.payout).result()).resolves.toBe('failed');
    expect(await balances()).toEqual(before);
    const traces = await tracesOf(refusal.payout);
    expect(traces).toMatchObject({ entries: 0, quotes: 0 });
    const lines = (await bank.journal()).filter(({ key }) => key === refusal.payout);
    expect(lines).toEqual([]);

    const payout = await client(`GET /v1/payouts/${refusal.payout}`);
    expect(payout.body).toMatchObject({
      status: 'failed',
      status_reason: expected.code,
      received: null,
      status_history: [{ status: 'pending' }, { status: 'failed', reason: expected.code }],
    });
    const events = eventList.parse((await client('GET /v1/events?limit=100')).body);
    expect(events.has_more).toBe(false);
    const own = events.data.filter(({ data }) => data.id === refusal.payout);
    expect(own).toMatchObject([
      { type: 'payout.failed', data: { status: 'failed', status_reason: expected.code } },
    ]);

    // The key keeps its refusal, even if the same request would now be accepted.
    await remedy?.();
    const again = await client('POST /v1/payouts', { form, idempotencyKey });
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(answeredOf(again)).toEqual(answeredOf(refused));
    expect(await tracesOf(refusal.payout)).toEqual(traces);
  });
});

describe('after a refusal', () => {
  it('the quote can be used for another payout', async () => {
    const { client } = system;
    const quote = await addQuote(client);
    const refused = await client('POST /v1/payouts', {
      form: { quote, beneficiary: newId('beneficiary') },
    });
    expect(refused.status).toBe(422);
    expect((await client(`GET /v1/quotes/${quote}`)).body).toMatchObject({
      status: 'open',
      payout: null,
    });
    const paid = await client('POST /v1/payouts', { form: { quote, beneficiary: german } });
    expect(paid.status).toBe(201);
    const used = await client(`GET /v1/quotes/${quote}`);
    expect(used.body).toMatchObject({ status: 'used', payout: textOf(paid, 'id') });
  });

  it('the ledger balances', async () => {
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });
});
