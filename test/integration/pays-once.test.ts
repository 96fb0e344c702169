import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exactlyOne } from '../../src/db/client.js';
import {
  type ApiAnswer,
  type ApiClient,
  createClient,
  textOf,
  untilStatus,
} from '../fixtures/client.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

type Caller = {
  readonly client: ApiClient;
  readonly accountId: string;
  readonly beneficiary: string;
};

/** A separate account for a test, so that all its debits are that test's doing. */
async function openCaller(usdMinor = 1_000_000n): Promise<Caller> {
  const { account, apiKey } = await createTestAccount(system.database, {
    funds: { USD: usdMinor },
  });
  const client = createClient(system.apiUrl, apiKey);
  const added = await client('POST /v1/beneficiaries', {
    form: {
      type: 'individual',
      name: 'Ada Lovelace',
      country: 'DE',
      currency: 'EUR',
      iban: 'DE89370400440532013000',
    },
  });
  return { client, accountId: account.id, beneficiary: textOf(added, 'id') };
}

const paymentOf = ({ beneficiary }: Caller) => ({
  source_currency: 'USD',
  amount: '10000',
  beneficiary,
});

/** The debits of the account's available USD balance since it was funded, in minor units. */
async function debited({ accountId }: Caller) {
  const [row] = await system.database<{ count: number; minor: bigint; lowest: bigint }[]>`
    with history as (
      select p.amount_minor, e.kind,
             sum(p.amount_minor) over (order by p.id)::bigint as balance
        from ledger_postings p
        join ledger_accounts a on a.id = p.ledger_account_id
        join ledger_entries e on e.id = p.entry_id
       where a.account_id = ${accountId} and a.kind = 'available' and a.currency = 'USD'
    )
    select count(*) filter (where kind = 'accept')::int as count,
           coalesce(-sum(amount_minor) filter (where kind <> 'fund'), 0)::bigint as minor,
           min(balance) as lowest
      from history`;
  return exactlyOne(row);
}

async function rowsOf(table: 'payouts' | 'quotes', { accountId }: Caller): Promise<number> {
  const rows = await system.database`
    select from ${system.database(table)} where account_id = ${accountId}`;
  return rows.count;
}

/** The bank's journal entries about a payout, without acknowledgements. */
async function sent(payout: string): Promise<readonly string[]> {
  const lines = (await system.bank.journal()).filter(({ key }) => key === payout);
  return lines.map(({ type }) => type).filter((type) => type !== 'acknowledged');
}

const idsOf = (answers: readonly ApiAnswer[]) =>
  new Set(answers.map((answer) => textOf(answer, 'id')));
const isReplay = ({ headers }: ApiAnswer) => headers.get('idempotent-replayed') === 'true';
const together = (count: number, send: (index: number) => Promise<ApiAnswer>) =>
  Promise.all(Array.from({ length: count }, (_, index) => send(index)));

describe('one idempotency key', () => {
  it('sent 50 times at once and again after settlement pays once', async () => {
    const caller = await openCaller();
    const idempotencyKey = crypto.randomUUID();
    const send = () =>
      caller.client('POST /v1/payouts', { form: paymentOf(caller), idempotencyKey });

    const answers = await together(50, send);
    for (const { status } of answers) expect([201, 202]).toContain(status);
    const [id = '', ...others] = idsOf(answers);
    expect(others).toEqual([]);
    expect(answers.filter(isReplay)).toHaveLength(49);

    await untilStatus(caller.client, id, 'settled');
    const later = await together(5, send);
    for (const answer of later) {
      expect(answer.status).toBe(201);
      expect(isReplay(answer)).toBe(true);
      expect(answer.body).toMatchObject({ id, status: 'settled' });
    }
    expect(await rowsOf('payouts', caller)).toBe(1);
    expect(await debited(caller)).toMatchObject({ count: 1, minor: 10_000n });
    expect(await sent(id)).toEqual(['transfer', 'settled']);
  });

  it('is the same with and without quotation marks', async () => {
    const caller = await openCaller();
    const key = crypto.randomUUID();
    const form = paymentOf(caller);
    const bare = await caller.client('POST /v1/payouts', { form, idempotencyKey: key });
    const quoted = await caller.client('POST /v1/payouts', { form, idempotencyKey: `"${key}"` });
    expect([isReplay(bare), isReplay(quoted)]).toEqual([false, true]);
    expect(idsOf([bare, quoted]).size).toBe(1);
    expect(await rowsOf('payouts', caller)).toBe(1);
  });

  it('accepts the same request as form and as JSON, whatever the order and type of values', async () => {
    const caller = await openCaller();
    const idempotencyKey = crypto.randomUUID();
    const { beneficiary } = caller;
    const form = { ...paymentOf(caller), 'metadata[invoice]': '17', 'metadata[batch]': 'a' };
    const metadata = { batch: 'a', invoice: '17' };
    const send = 'POST /v1/payouts';
    const answers = [
      await caller.client(send, { form, idempotencyKey }),
      await caller.client(send, {
        json: { metadata, beneficiary, amount: 10_000, source_currency: 'USD' },
        idempotencyKey,
      }),
      await caller.client(send, { json: { ...paymentOf(caller), metadata }, idempotencyKey }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201]);
    expect(answers.map(isReplay)).toEqual([false, true, true]);
    expect(idsOf(answers).size).toBe(1);
    expect(await debited(caller)).toMatchObject({ count: 1 });
  });

  it.each([
    ['amount', { amount: '10001' }],
    ['reference', { reference: 'Invoice 17' }],
    ['metadata[invoice]', { 'metadata[invoice]': '17' }],
  ])('reused with another %s is refused, naming it and the payout', async (param, change) => {
    const caller = await openCaller();
    const idempotencyKey = crypto.randomUUID();
    const form = paymentOf(caller);
    const first = await caller.client('POST /v1/payouts', { form, idempotencyKey });
    const other = await caller.client('POST /v1/payouts', {
      form: { ...form, ...change },
      idempotencyKey,
    });
    expect(other.status).toBe(422);
    const payout = textOf(first, 'id');
    expect(other.body).toMatchObject({ code: 'idempotency_key_reused', param, payout });
    expect(textOf(other, 'detail')).toContain(payout);
    expect(await rowsOf('payouts', caller)).toBe(1);
  });

  it.each([
    ['POST /v1/quotes', { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' }],
    ['POST /v1/test/fund', { currency: 'USD', amount: '10000' }],
  ])('used for a payout is refused on another route: %s', async (route, form) => {
    const caller = await openCaller();
    const idempotencyKey = crypto.randomUUID();
    const paid = await caller.client('POST /v1/payouts', {
      form: paymentOf(caller),
      idempotencyKey,
    });
    const before = await debited(caller);
    const other = await caller.client(route, { form, idempotencyKey });
    expect(other.status).toBe(422);
    expect(other.body).toMatchObject({ code: 'idempotency_key_reused', received: route });
    expect(textOf(other, 'expected')).toContain('POST /v1/payouts');
    expect(textOf(other, 'detail')).toContain(textOf(paid, 'id'));
    expect(await rowsOf('quotes', caller)).toBe(0);
    expect(await debited(caller)).toEqual(before);
  });

  it('used by two accounts is two keys', async () => {
    const callers = [await openCaller(), await openCaller()];
    const idempotencyKey = crypto.randomUUID();
    const answers = await Promise.all(
      callers.map((caller) =>
        caller.client('POST /v1/payouts', { form: paymentOf(caller), idempotencyKey }),
      ),
    );
    expect(answers.map(isReplay)).toEqual([false, false]);
    expect(idsOf(answers).size).toBe(2);
    for (const caller of callers) expect(await debited(caller)).toMatchObject({ count: 1 });
  });

  it('sent 50 times at once makes one quote', async () => {
    const caller = await openCaller();
    const idempotencyKey = crypto.randomUUID();
    const form = { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' };
    const answers = await together(50, () =>
      caller.client('POST /v1/quotes', { form, idempotencyKey }),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(idsOf(answers).size).toBe(1);
    expect(answers.filter(isReplay)).toHaveLength(49);
    expect(await rowsOf('quotes', caller)).toBe(1);
  });
});

/** Sends until the payout is decided, because on a busy machine the first answers may be 202. */
async function untilDecided(send: () => Promise<ApiAnswer>): Promise<ApiAnswer> {
  // Each answer waits three seconds for the decision: half a minute in total.
  for (let attempt = 1; attempt <= 10; attempt += 1) {
    const answer = await send();
    if (answer.status !== 202) return answer;
  }
  throw new Error('The payout was not decided.');
}

describe('concurrent payouts', () => {
  /** The only answer that is not a refusal, and the codes of the others. */
  function outcomeOf(answers: readonly ApiAnswer[]) {
    const winners = answers.filter(({ status }) => status === 201);
    const losers = answers.filter(({ status }) => status !== 201);
    return {
      winners,
      codes: losers.map(({ status, body }) => `${status} ${String(body['code'])}`),
    };
  }

  it.each([2, 10])('for one quote: one of %i succeeds, the others are refused', async (count) => {
    const caller = await openCaller();
    const { client, beneficiary } = caller;
    const quoteForm = { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' };
    const quote = textOf(await client('POST /v1/quotes', { form: quoteForm }), 'id');
    const answers = await together(count, (index) => {
      const idempotencyKey = `race-${quote}-${index}`;
      const form = { quote, beneficiary };
      return untilDecided(() => client('POST /v1/payouts', { form, idempotencyKey }));
    });
    const { winners, codes } = outcomeOf(answers);
    expect(codes).toEqual(Array.from({ length: count - 1 }, () => '422 quote_used'));
    const winner = textOf(exactlyOne(winners[0]), 'id');
    expect((await client(`GET /v1/quotes/${quote}`)).body).toMatchObject({
      status: 'used',
      payout: winner,
    });
    await untilStatus(client, winner, 'settled');
    expect(await debited(caller)).toMatchObject({ count: 1, minor: 10_000n });
    expect(await sent(winner)).toEqual(['transfer', 'settled']);
  });

  it.each([2, 10])('for the last funds: one of %i succeeds and none overdraws', async (count) => {
    // One minor unit less than two payouts need.
    const caller = await openCaller(19_999n);
    const { client } = caller;
    const answers = await together(count, () => {
      const idempotencyKey = crypto.randomUUID();
      const form = paymentOf(caller);
      return untilDecided(() => client('POST /v1/payouts', { form, idempotencyKey }));
    });
    const { winners, codes } = outcomeOf(answers);
    expect(codes).toEqual(Array.from({ length: count - 1 }, () => '422 insufficient_funds'));
    await untilStatus(client, textOf(exactlyOne(winners[0]), 'id'), 'settled');
    expect(await debited(caller)).toEqual({ count: 1, minor: 10_000n, lowest: 9_999n });
  });
});

it('after all these tests the bank has every payout once and the ledger balances', async () => {
  const rows = await system.database<{ id: string }[]>`
    select id from payouts where status not in ('failed', 'canceled')`;
  // Waits so that no workflow is still between its debit and the submission.
  await Promise.all(rows.map(({ id }) => system.temporal.workflow.getHandle(id).result()));
  const journal = await system.bank.journal();
  const transfers = journal.filter(({ type }) => type === 'transfer').map(({ key }) => String(key));
  expect(transfers.sort()).toEqual(rows.map(({ id }) => id).sort());
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
});
