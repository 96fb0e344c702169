import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { insertBatch } from '../../src/db/batches.js';
import { transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { insertPayout, type NewPayout, refusePayouts } from '../../src/db/payouts.js';
import { storeRates } from '../../src/db/rates.js';
import { refuse } from '../../src/domain/refusal.js';
import { referenceSource } from '../../src/rates/reference.js';
import { eventually } from '../assertions/eventually.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

const listed = z.object({
  object: z.literal('list'),
  data: z.array(z.looseObject({ id: z.string() })),
  has_more: z.boolean(),
});
type Page = z.infer<typeof listed>;
const idsOf = ({ data }: Page) => data.map(({ id }) => id);

type Owner = { readonly client: ApiClient; readonly accountId: string; readonly stored: string };

/** A separate account for a test, with a beneficiary. */
async function openOwner(): Promise<Owner> {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  const stored = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  return { client, accountId: account.id, stored };
}

async function list(client: ApiClient, path: string): Promise<Page> {
  const answer = await client(`GET ${path}`);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return listed.parse(answer.body);
}

/** A payout as a request records it. No worker decides it during a test. */
function newPayout({ accountId, stored }: Owner, changes: Partial<NewPayout> = {}): NewPayout {
  return {
    id: newId('payout'),
    accountId,
    mode: 'test',
    driver: 'a test',
    quoteId: null,
    beneficiaryId: stored,
    sourceCurrency: 'USD',
    destinationCurrency: 'EUR',
    fixedSide: 'source',
    amount: 10_000n,
    reference: null,
    metadata: {},
    ...changes,
  };
}

/** Records a payout in a separate millisecond: within one, lists are ordered by IDs, which are random. */
async function record(owner: Owner, changes: Partial<NewPayout> = {}): Promise<string> {
  const payout = newPayout(owner, changes);
  await insertPayout(system.database, payout);
  await system.database`select pg_sleep(0.002)`;
  return payout.id;
}

/** Records several payouts at one time, so that only their IDs differ. */
async function recordTogether(owner: Owner, count: number): Promise<readonly string[]> {
  const payouts = Array.from({ length: count }, () => newPayout(owner));
  await transaction(system.database, async (sql) => {
    for (const payout of payouts) await insertPayout(sql, payout);
  });
  return payouts.map(({ id }) => id);
}

/** Reads a list to its end, page by page, and calls `between` before each next page. */
async function walk(
  client: ApiClient,
  path: string,
  limit: number,
  between: () => Promise<unknown> = () => Promise.resolve(),
): Promise<readonly string[]> {
  const seen: string[] = [];
  // Limited, so that an endless list fails the test.
  for (let pages = 0; pages < 50; pages += 1) {
    const cursor = seen.length === 0 ? '' : `&starting_after=${seen.at(-1)}`;
    const page = await list(client, `${path}limit=${limit}${cursor}`);
    seen.push(...idsOf(page));
    if (!page.has_more) return seen;
    await between();
  }
  throw new Error(`${path} does not end.`);
}

describe('paging through payouts', () => {
  it('returns each once even if a status is named twice', async () => {
    const owner = await openOwner();
    const ids = [await record(owner), await record(owner)];
    const page = await list(owner.client, '/v1/payouts?status=pending&status=pending');
    expect(idsOf(page)).toEqual(ids.toReversed());
    const seen = await walk(owner.client, '/v1/payouts?status=pending&status=pending&', 1);
    expect(seen).toEqual(ids.toReversed());
  });

  it('returns each once, even those of the same instant, while others arrive', async () => {
    const owner = await openOwner();
    const first = await recordTogether(owner, 17);
    const second = [await record(owner), await record(owner)];
    const seen = await walk(owner.client, '/v1/payouts?', 4, () => recordTogether(owner, 3));
    expect(seen).toHaveLength(19);
    expect(new Set(seen)).toEqual(new Set([...first, ...second]));
    expect(seen.slice(0, 2)).toEqual(second.toReversed());
  });

  it('keeps the order while payouts change their status', async () => {
    const owner = await openOwner();
    const ids = await recordTogether(owner, 12);
    const seen = await walk(owner.client, '/v1/payouts?', 5, async () => {
      const id = ids[Math.floor(Math.random() * ids.length)] ?? '';
      const refusals = [{ id, refusal: refuse('quote_expired') }];
      const pending = await system.database`
        select from payouts where id = ${id} and status = 'pending'`;
      if (pending.length > 0) await refusePayouts(system.database, refusals);
    });
    expect(seen).toEqual([...ids].sort().reverse());
  });

  it('goes back with ending_before, starting with the nearest page', async () => {
    const owner = await openOwner();
    const newestFirst = [...(await recordTogether(owner, 9))].sort().reverse();
    const back = await list(owner.client, `/v1/payouts?limit=3&ending_before=${newestFirst[7]}`);
    expect(idsOf(back)).toEqual(newestFirst.slice(4, 7));
    expect(back.has_more).toBe(true);
    const start = await list(owner.client, `/v1/payouts?limit=3&ending_before=${newestFirst[2]}`);
    expect(idsOf(start)).toEqual(newestFirst.slice(0, 2));
    expect(start.has_more).toBe(false);
  });
});

describe('payouts can be found by', () => {
  let owner: Owner;
  let other: Owner;
  const made: Record<string, string> = {};

  beforeAll(async () => {
    [owner, other] = [await openOwner(), await openOwner()];
    const second = textOf(
      await owner.client('POST /v1/beneficiaries', { form: beneficiary }),
      'id',
    );
    made['plain'] = await record(owner);
    made['referred'] = await record(owner, { reference: 'Rent & more' });
    made['yen'] = await record(owner, { sourceCurrency: 'JPY', destinationCurrency: 'GBP' });
    made['second'] = await record(owner, { beneficiaryId: second });
    made['tagged'] = await record(owner, { metadata: { order: '7', 'a key': 'é 漢' } });
    made['half'] = await record(owner, { metadata: { order: '7' } });
    made['failed'] = await record(owner, { reference: 'Rent & more' });
    await refusePayouts(system.database, [
      { id: made['failed'], refusal: refuse('quote_expired') },
    ]);
    const item = newPayout(owner);
    made['item'] = item.id;
    made['batch'] = newId('batch');
    await insertBatch(system.database, {
      id: made['batch'],
      accountId: owner.accountId,
      mode: 'best_effort',
      rates: [],
      items: [{ index: 0, payout: item, refusal: null }],
    });
    made['beneficiary'] = second;
    await record(other, { reference: 'Rent & more', metadata: { order: '7' } });
  });

  const found = async (query: string) => {
    const page = await list(owner.client, `/v1/payouts?${query}`);
    const names = Object.entries(made).map(([name, id]) => [id, name] as const);
    return idsOf(page).map((id) => new Map(names).get(id));
  };

  it.each([
    ['status=failed', ['failed']],
    ['status=settled', []],
    ['status=failed&status=settled', ['failed']],
    ['status[]=failed&status[]=settled', ['failed']],
    ['status=failed&status=pending&reference=Rent+%26+more', ['failed', 'referred']],
    ['status=settled&status=returned&reference=Rent+%26+more', []],
    ['reference=Rent+%26+more', ['failed', 'referred']],
    ['reference=Rent+%26+more&status=pending', ['referred']],
    ['reference=rent+%26+more', []],
    ['source_currency=JPY', ['yen']],
    ['destination_currency=GBP', ['yen']],
    ['destination_currency=GBP&source_currency=USD', []],
    ['metadata[order]=7', ['half', 'tagged']],
    ['metadata%5Border%5D=7&metadata[a+key]=%C3%A9+%E6%BC%A2', ['tagged']],
    ['metadata[order]=8', []],
  ])('%s', async (query, names) => {
    expect(await found(query)).toEqual(names);
  });

  it('their beneficiary and their batch', async () => {
    expect(await found(`beneficiary=${made['beneficiary']}`)).toEqual(['second']);
    expect(await found(`batch=${made['batch']}`)).toEqual(['item']);
    expect(await found(`batch=${made['batch']}&beneficiary=${made['beneficiary']}`)).toEqual([]);
  });

  it('their creation time, with inclusive and exclusive bounds', async () => {
    const read = await owner.client(`GET /v1/payouts/${made['yen']}`);
    const at = textOf(read, 'created_at');
    const at2 = new Date(Date.parse(at) + 1).toISOString();
    expect(await found(`created[gte]=${at}&created[lt]=${at2}`)).toContain('yen');
    expect(await found(`created[lte]=${at}`)).toContain('yen');
    expect(await found(`created[lt]=${at}`)).not.toContain('yen');
    expect(await found(`created[gt]=${at}`)).not.toContain('yen');
    expect(await found(`created[gte]=${at}&created[lte]=${at}&source_currency=JPY`)).toEqual([
      'yen',
    ]);
    // The same time on a clock two hours ahead, and on one half an hour behind.
    const clock = (hours: number) => new Date(Date.parse(at) + hours * 3_600_000).toISOString();
    expect(await found(`created[gte]=${clock(2).replace('Z', '%2B02:00')}`)).toContain('yen');
    expect(await found(`created[gt]=${clock(2).replace('Z', '%2B02:00')}`)).not.toContain('yen');
    expect(await found(`created[lt]=${clock(-0.5).replace('Z', '-00:30')}`)).not.toContain('yen');
  });

  it('a date, which is the whole day', async () => {
    const at = Date.parse(
      textOf(await owner.client(`GET /v1/payouts/${made['yen']}`), 'created_at'),
    );
    const dayMs = 24 * 60 * 60 * 1000;
    const [before, day, after] = [-dayMs, 0, dayMs].map((ms) =>
      new Date(at + ms).toISOString().slice(0, 'YYYY-MM-DD'.length),
    );
    for (const bound of [`gte]=${day}`, `lte]=${day}`, `gt]=${before}`, `lt]=${after}`]) {
      expect(await found(`created[${bound}`)).toContain('yen');
    }
    for (const bound of [`gt]=${day}`, `lt]=${day}`, `lte]=${before}`, `gte]=${after}`]) {
      expect(await found(`created[${bound}`)).not.toContain('yen');
    }
  });

  it('a currency that only the decision determines', async () => {
    const id = await record(owner, { sourceCurrency: null, destinationCurrency: 'EUR' });
    expect(await found('source_currency=SEK')).toEqual([]);
    await system.database`update payouts set source_currency = 'SEK' where id = ${id}`;
    expect(idsOf(await list(owner.client, '/v1/payouts?source_currency=SEK'))).toEqual([id]);
  });

  it('no other account, whatever the query', async () => {
    const lists = [owner, other].map((who) => list(who.client, '/v1/payouts?limit=100'));
    const [ownIds = [], otherIds = []] = (await Promise.all(lists)).map(idsOf);
    expect(otherIds).toHaveLength(1);
    expect(ownIds).not.toContain(otherIds[0]);
    for (const query of [`beneficiary=${owner.stored}`, `batch=${made['batch']}`]) {
      expect(idsOf(await list(other.client, `/v1/payouts?${query}`))).toEqual([]);
    }
    const cursor = await other.client(`GET /v1/payouts?starting_after=${made['plain']}`);
    expect(cursor).toMatchObject({ status: 422, body: { code: 'cursor_not_found' } });
  });
});

describe('a list refuses', () => {
  it.each([
    ['/v1/payouts?statis=sent', 'statis', 'Did you mean status?'],
    ['/v1/payouts?status=setled', 'status', 'Did you mean settled?'],
    ['/v1/payouts?expand[]=beneficary', 'expand', 'Did you mean beneficiary?'],
    ['/v1/payouts?created[gtr]=2026-01-01T00:00:00Z', 'created[gtr]', 'Did you mean gt'],
    ['/v1/payouts?created=2026-01-01', 'created', 'created[gte]'],
    ['/v1/payouts?created[gte]=2026-02-30T00:00:00Z', 'created[gte]', 'a time with Z'],
    ['/v1/payouts?created[gte]=2026-02-30', 'created[gte]', 'a time with Z'],
    ['/v1/payouts?created[gte]=0000-01-01T00:00:00Z', 'created[gte]', 'a time with Z'],
    ['/v1/events?created[lt]=0000-12-31T23:59:59Z', 'created[lt]', 'a time with Z'],
    ['/v1/payouts?created[gte]=2026-02-20T00:00:00%2B25:00', 'created[gte]', 'a time with Z'],
    ['/v1/payouts?created[gte]=0001-01-01T00:00:00%2B01:00', 'created[gte]', 'a time with Z'],
    ['/v1/payouts?created[lt]=9999-12-31T23:59:59-01:00', 'created[lt]', 'a time with Z'],
    ['/v1/payouts?created[gte]=2026-02-20T00:00:00+01:00', 'created[gte]', 'send %2B'],
    ['/v1/payouts?limit=0', 'limit', '1 to 100'],
    ['/v1/payouts?limit=101', 'limit', '1 to 100'],
    ['/v1/payouts?source_currency=usd', 'source_currency', 'EUR'],
    ['/v1/payouts?metadata=7', 'metadata', 'keys'],
    ['/v1/payouts?starting_after=bnf_1', 'starting_after', 'po_'],
    ['/v1/batches?status=done', 'status', 'completed'],
    ['/v1/beneficiaries?curency=EUR', 'curency', 'Did you mean currency?'],
    ['/v1/webhook_endpoints?status=off', 'status', 'enabled'],
    ['/v1/events?type=payout.settle', 'type', 'Did you mean payout.settled?'],
    ['/v1/events?after=-1', 'after', 'sequence'],
    ['/v1/events?after=0&created[gte]=2026-11-21', 'created[gte]', ''],
    ['/v1/events?after=0&type=payout.sent', 'type', 'left out'],
    ['/v1/balance_transactions?type=settled', 'type', 'Did you mean settle?'],
    ['/v1/balance_transactions?starting_after=7', 'starting_after', 'txn_'],
    ['/v1/corridors?from=USD', 'from', 'source_currency'],
    ['/v1/rates/history?source_currency=USD', 'destination_currency', 'ISO 4217'],
    ['/v1/rates/history?starting_after=7', 'starting_after', 'rate_'],
    ['/v1/beneficiary_requirements', 'country', 'ISO 3166-1'],
  ])('GET %s and names %s', async (path, param, expected) => {
    const answer = await system.client(`GET ${path}`);
    expect(answer).toMatchObject({ status: 400, body: { param } });
    expect(JSON.stringify(answer.body)).toContain(expected);
  });

  it('all errors in one answer', async () => {
    const answer = await system.client('GET /v1/payouts?limit=0&status=x&colour=red');
    const errors = z.array(z.object({ param: z.string() })).parse(answer.body['errors']);
    expect(errors.map(({ param }) => param).sort()).toEqual(['colour', 'limit', 'status']);
  });

  it.each([
    ['payouts', 'po_1'],
    ['batches', 'bat_1'],
    ['beneficiaries', 'bnf_1'],
    ['webhook_endpoints', 'we_1'],
    ['events', 'evt_1'],
    ['balance_transactions', 'txn_999999999999'],
    ['rates/history', 'rate_999999999999'],
  ])('%s with a cursor that does not exist, or with two cursors', async (name, id) => {
    const pair = name.startsWith('rates') ? 'source_currency=USD&destination_currency=EUR&' : '';
    const absent = await system.client(`GET /v1/${name}?${pair}ending_before=${id}`);
    expect(absent).toMatchObject({
      status: 422,
      body: { code: 'cursor_not_found', param: 'ending_before', received: id },
    });
    const both = await system.client(
      `GET /v1/${name}?${pair}ending_before=${id}&starting_after=${id}`,
    );
    expect(both).toMatchObject({
      status: 400,
      body: { code: 'parameters_exclusive', param: 'ending_before' },
    });
  });
});

describe('a list', () => {
  it('accepts times from year 1 to year 9999', async () => {
    for (const time of ['0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999Z']) {
      await list(system.client, `/v1/payouts?created[gte]=${time}`);
    }
  });

  it('finds the same payouts whichever filter is rarest', async () => {
    const owner = await openOwner();
    const common = { reference: 'Rent', metadata: { team: 'a', order: '1' } };
    const matching = await record(owner, common);
    for (const changes of [
      { ...common, reference: 'Salary' },
      { ...common, metadata: { team: 'b', order: '1' } },
      { ...common, metadata: { team: 'a' } },
      { ...common, sourceCurrency: 'GBP' },
    ]) {
      await record(owner, changes);
    }
    const refused = await record(owner, common);
    await refusePayouts(system.database, [{ id: refused, refusal: refuse('quote_expired') }]);
    const query = `reference=Rent&metadata[team]=a&metadata[order]=1&source_currency=USD&beneficiary=${owner.stored}`;
    const found = async (more: string) =>
      idsOf(await list(owner.client, `/v1/payouts?${query}${more}`));
    expect(await found('')).toEqual([refused, matching]);
    expect(await found('&status=pending')).toEqual([matching]);
    expect(await found('&status=failed')).toEqual([refused]);
    expect(await found('&status=settled')).toEqual([]);
    expect(await found(`&starting_after=${refused}`)).toEqual([matching]);
    expect(await found(`&ending_before=${matching}`)).toEqual([refused]);
    expect(await found('&destination_currency=JPY')).toEqual([]);
  });
});

describe('a list whose filters each match many payouts', () => {
  let owner: Owner;
  /** More payouts than are searched for one page, half of them of each kind. */
  const many = 5_000;

  beforeAll(async () => {
    owner = await openOwner();
    await system.database`
      insert into payouts (id, account_id, mode, driver, beneficiary_id, source_currency,
          destination_currency, amount, reference, metadata, requested_at)
        select 'po_' || md5(${owner.accountId} || i), ${owner.accountId}, 'test', 'a test',
               ${owner.stored}, 'USD', 'EUR', 10000, case when i % 2 = 0 then 'even' else 'odd' end,
               jsonb_build_object('half', (i % 2)::text), now() - make_interval(secs => i)
          from generate_series(1, ${many}::int) i`;
  }, 120_000);

  const ask = (query: string) => owner.client(`GET /v1/payouts?${query}`);

  it('is refused if no payout matches all, and the answer says how to narrow it', async () => {
    for (const query of ['reference=even&metadata[half]=1', 'reference=odd&metadata[half]=0']) {
      const answer = await ask(`${query}&status=pending`);
      expect(answer).toMatchObject({
        status: 422,
        body: { code: 'list_too_broad', param: 'created' },
      });
      expect(textOf(answer, 'expected')).toContain('created[gte]');
    }
  });

  it('is answered if many match all, if one filter is rare, or in a narrow time', async () => {
    const page = await list(owner.client, '/v1/payouts?reference=even&metadata[half]=0&limit=100');
    expect(page.data).toHaveLength(100);
    expect((await list(owner.client, '/v1/payouts?reference=even&metadata[half]=7')).data).toEqual(
      [],
    );
    const [last] = page.data;
    const since = new Date(Date.parse(String(last?.['created_at'])) - 60_000).toISOString();
    const narrow = `reference=even&metadata[half]=1&created[gte]=${since}`;
    expect((await list(owner.client, `/v1/payouts?${narrow}`)).data).toEqual([]);
  });

  it('can be paged through to its end, and no page is refused', async () => {
    const seen = await walk(owner.client, '/v1/payouts?reference=odd&metadata[half]=1&', 100);
    expect(seen).toHaveLength(many / 2);
  });
});

describe('a list that takes too long', () => {
  it.each(['/v1/payouts', '/v1/events', '/v1/balance_transactions', '/v1/beneficiaries'])(
    'is aborted with a clear error: %s',
    async (path) => {
      // The table cannot be read until this transaction ends.
      const table = path.slice('/v1/'.length).replace('balance_transactions', 'ledger_balances');
      const answer = await system.database.begin(async (sql) => {
        await sql`lock table ${sql(table)} in access exclusive mode`;
        return system.client(`GET ${path}`);
      });
      expect(answer).toMatchObject({ status: 503, body: { code: 'service_unavailable' } });
      expect(answer.headers.get('retry-after')).toBe('5');
      expect(textOf(answer, 'detail')).toContain('Narrow a list by created');
      expect((await system.client(`GET ${path}`)).status).toBe(200);
    },
  );
});

describe('lists of one account', () => {
  it('are read two at a time, without delaying other accounts or requests', async () => {
    const [many, other] = [await openOwner(), await openOwner()];
    const reading = () => system.database<{ count: number }[]>`
      select count(*)::int as count from pg_stat_activity
       where application_name = 'test-lists' and wait_event_type = 'Lock'
         and datname = current_database()`;
    const answers = await system.database.begin(async (sql) => {
      // Each waits a second, the timeout of a list's statement.
      await sql`lock table beneficiaries in access exclusive mode`;
      const asking = Array.from({ length: 6 }, () => many.client('GET /v1/beneficiaries'));
      await eventually('two lists wait in the database', 10_000, async () => {
        const [row] = await reading();
        expect(row?.count).toBeLessThanOrEqual(2);
        return row?.count === 2 ? true : undefined;
      });
      expect((await other.client('GET /v1/batches')).status).toBe(200);
      expect((await many.client('GET /v1/balances')).status).toBe(200);
      return Promise.all(asking);
    });
    // Each is given up in turn, and refused with a 503.
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]));
    expect((await many.client('GET /v1/beneficiaries')).status).toBe(200);
  });

  it('pause after a search by several filters', async () => {
    const { client } = await openOwner();
    const search = 'GET /v1/payouts?reference=none&metadata[half]=7';
    await client(search);
    const startMs = performance.now();
    // Two run at a time, so the last two wait for three pauses of 100 ms.
    const answers = await Promise.all(Array.from({ length: 8 }, () => client(search)));
    const tookMs = performance.now() - startMs;
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(tookMs).toBeGreaterThan(290);
  });
});

describe('an expanded payout', () => {
  const numbers = { rate: expect.any(Number), fee: expect.any(Number) };

  it('contains the objects instead of their ids, in the requested version', async () => {
    const { client, stored } = await openOwner();
    const quote = await client('POST /v1/quotes', {
      form: { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' },
    });
    const id = textOf(
      await client('POST /v1/payouts', {
        form: { quote: textOf(quote, 'id'), beneficiary: stored },
      }),
      'id',
    );
    await untilStatus(client, id, 'settled');
    const query = 'expand[]=quote&expand[]=beneficiary&expand[]=batch';
    const single = await client(`GET /v1/payouts/${id}?${query}`);
    expect(single.body).toMatchObject({
      id,
      ...numbers,
      quote: { object: 'quote', id: quote.body['id'], payout: id, ...numbers },
      beneficiary: { object: 'beneficiary', id: stored, iban: '****3000' },
      batch: null,
    });
    expect((await list(client, `/v1/payouts?${query}`)).data).toEqual([single.body]);
    const newer = await client(`GET /v1/payouts?${query}`, {
      headers: { 'corridor-version': '2026-11-15' },
    });
    expect(newer.body).toMatchObject({
      data: [{ rate: expect.any(String), quote: { fee: expect.any(String) } }],
    });
    const plain = await client(`GET /v1/payouts/${id}`);
    expect(plain.body).toMatchObject({ quote: quote.body['id'], beneficiary: stored });
  });

  it('keeps ids of unknown objects, and shows deleted beneficiaries', async () => {
    const owner = await openOwner();
    const stranger = await openOwner();
    const foreign = await record(owner, { beneficiaryId: stranger.stored, quoteId: 'qt_none' });
    const deleted = await record(owner);
    await owner.client(`DELETE /v1/beneficiaries/${owner.stored}`);
    const { data } = await list(owner.client, '/v1/payouts?expand[]=beneficiary&expand[]=quote');
    expect(data).toMatchObject([
      { id: deleted, beneficiary: { id: owner.stored, deleted: true } },
      { id: foreign, beneficiary: stranger.stored, quote: 'qt_none' },
    ]);
  });

  it('of a batch contains the batch without its counts', async () => {
    const owner = await openOwner();
    const id = newId('batch');
    await insertBatch(system.database, {
      id,
      accountId: owner.accountId,
      mode: 'best_effort',
      rates: [],
      items: [0, 1].map((index) => ({ index, payout: newPayout(owner), refusal: null })),
    });
    const { data } = await list(owner.client, `/v1/payouts?batch=${id}&expand[]=batch`);
    const batch = { object: 'batch', id, status: 'processing', counts: null, totals: null };
    expect(data).toMatchObject([{ batch }, { batch }]);
    expect((await list(owner.client, '/v1/batches?status=processing')).data).toMatchObject([batch]);
    expect((await list(owner.client, '/v1/batches?status=completed')).data).toEqual([]);
  });
});

describe('the other lists', () => {
  it('of beneficiaries omit deleted ones, which still work as cursors', async () => {
    const { client, stored } = await openOwner();
    const add = async (form: Readonly<Record<string, string>>) =>
      textOf(await client('POST /v1/beneficiaries', { form }), 'id');
    const us = await add({
      type: 'business',
      name: 'Grace Hopper',
      country: 'US',
      currency: 'USD',
      account_number: '000123456789',
      routing_number: '021000021',
    });
    const last = await add(beneficiary);
    expect(await walk(client, '/v1/beneficiaries?', 1)).toEqual([last, us, stored]);
    expect(idsOf(await list(client, '/v1/beneficiaries?currency=USD'))).toEqual([us]);
    await client(`DELETE /v1/beneficiaries/${us}`);
    expect(idsOf(await list(client, '/v1/beneficiaries'))).toEqual([last, stored]);
    expect(idsOf(await list(client, `/v1/beneficiaries?starting_after=${us}`))).toEqual([stored]);
  });

  it('of webhook endpoints go page by page', async () => {
    const { client } = await openOwner();
    const ids: string[] = [];
    for (const path of ['a', 'b', 'c']) {
      const json = { url: `http://127.0.0.1:9/${path}`, events: ['*'] };
      ids.unshift(textOf(await client('POST /v1/webhook_endpoints', { json }), 'id'));
    }
    expect(await walk(client, '/v1/webhook_endpoints?status=enabled&', 1)).toEqual(ids);
    expect(idsOf(await list(client, '/v1/webhook_endpoints?status=disabled'))).toEqual([]);
  });

  it('of events and balance transactions show what a payout did, and deliveries', async () => {
    const { client, stored } = await openOwner();
    const endpoint = await client('POST /v1/webhook_endpoints', {
      json: { url: 'http://127.0.0.1:9/', events: ['payout.settled'] },
    });
    const form = { source_currency: 'USD', amount: '10000', beneficiary: stored };
    const pay = async () => {
      const id = textOf(await client('POST /v1/payouts', { form }), 'id');
      const settled = await untilStatus(client, id, 'settled');
      return { id, fee: settled.body['fee'] };
    };
    const [first, second] = [await pay(), await pay()];

    const types = (page: Page) => page.data.map(({ type }) => type);
    const events = await list(client, '/v1/events');
    expect(types(events).slice(0, 1)).toEqual(['payout.settled']);
    expect(events.data).toHaveLength(4);
    expect(await walk(client, '/v1/events?', 3)).toEqual(idsOf(events));
    expect(types(await list(client, `/v1/events?payout=${first.id}`))).toEqual([
      'payout.settled',
      'payout.sent',
    ]);
    const settledEvents = await list(client, '/v1/events?type=payout.settled');
    expect(settledEvents.data).toMatchObject([
      { data: { id: second.id } },
      { data: { id: first.id } },
    ]);
    const feed = await list(client, '/v1/events?after=1&limit=2');
    expect(feed.data).toMatchObject([{ sequence: 2 }, { sequence: 3 }]);

    const id = settledEvents.data[0]?.id ?? '';
    expect((await client(`GET /v1/events/${id}`)).body).toEqual(settledEvents.data[0]);
    await expect
      .poll(async () => (await client(`GET /v1/events/${id}/deliveries`)).body)
      .toMatchObject({
        data: [
          {
            object: 'delivery',
            event: id,
            webhook_endpoint: endpoint.body['id'],
            status: 'pending',
            last_status: null,
            last_error: expect.any(String),
            next_attempt_at: expect.any(String),
          },
        ],
        has_more: false,
      });
    for (const path of [id, `${id}/deliveries`]) {
      expect((await system.client(`GET /v1/events/${path}`)).status).toBe(404);
    }

    const moved = await list(client, `/v1/balance_transactions?payout=${second.id}`);
    const one = { object: 'balance_transaction', payout: second.id, currency: 'USD' };
    expect(moved.data).toHaveLength(4);
    expect(moved.data).toMatchObject([
      { ...one, type: 'settle', balance: 'held' },
      { ...one, type: 'settle', balance: 'held' },
      { ...one, type: 'accept', balance: 'held', amount: '100.00' },
      { ...one, type: 'accept', balance: 'available', amount: '-100.00' },
    ]);
    const all = await walk(client, '/v1/balance_transactions?', 3);
    expect(all).toHaveLength(10);
    expect(idsOf(await list(client, '/v1/balance_transactions'))).toEqual(all);
    const funds = await list(client, '/v1/balance_transactions?type=fund&currency=EUR');
    expect(funds.data).toMatchObject([
      { type: 'fund', payout: null, balance: 'available', amount: '10000.00', currency: 'EUR' },
    ]);
    const foreign = await system.client(`GET /v1/balance_transactions?payout=${second.id}`);
    expect(foreign.body).toMatchObject({ data: [] });
  });
});

describe('paging through balance transactions', () => {
  it.each([1, 2, 3])('misses no entry with a single transaction, %d a page', async (limit) => {
    const { client } = await openOwner();
    for (const amount of [1, 2, 3, 4, 5]) {
      const funded = await client('POST /v1/test/fund', { json: { currency: 'USD', amount } });
      expect(funded.status).toBe(201);
    }
    const path = '/v1/balance_transactions?currency=USD&';
    const all = idsOf(await list(client, path));
    expect(all).toHaveLength(6);
    expect(await walk(client, path, limit)).toEqual(all);
    const back = await list(client, `${path}limit=${limit}&ending_before=${all.at(-1)}`);
    expect(idsOf(back)).toEqual(all.slice(5 - limit, 5));
    expect(back.has_more).toBe(true);
  });
});

describe('reference data', () => {
  it('includes past mid rates, each with its two source rates', async () => {
    const { provider, isForTests } = referenceSource;
    const perEuro = new Map([['USD', '1.17']]);
    await storeRates(system.database, { provider, isForTests }, { asOf: new Date(), perEuro });
    const path = '/v1/rates/history?source_currency=USD&destination_currency=EUR';
    const half = { id: expect.stringMatching(/^rate_\d+$/), as_of: expect.any(String) };
    const page = await list(system.client, path);
    const [newest, first] = page.data;
    expect(newest).toEqual({
      object: 'past_rate',
      id: newest?.id,
      source_currency: 'USD',
      destination_currency: 'EUR',
      mid_rate: '0.854700854701',
      provider,
      as_of: expect.any(String),
      received_at: expect.any(String),
      source_rate: { ...half, id: newest?.id, per_euro: '1.17' },
      destination_rate: { ...half, per_euro: '1' },
    });
    expect(first).toMatchObject({ mid_rate: '0.861178091629' });
    expect(await walk(system.client, `${path}&`, 1)).toEqual(idsOf(page));
    const newer = await list(system.client, `${path}&created[gt]=${String(first?.['as_of'])}`);
    expect(newer.data).toEqual([newest]);
    // A rate of US dollars is in no list of pounds and yen.
    const other = '/v1/rates/history?source_currency=GBP&destination_currency=JPY';
    const foreign = await system.client(`GET ${other}&starting_after=${newest?.id}`);
    expect(foreign).toMatchObject({ status: 422, body: { code: 'cursor_not_found' } });
  });

  it('lists each corridor', async () => {
    const one = await system.client(
      'GET /v1/corridors?source_currency=USD&destination_currency=JPY',
    );
    expect(one.body).toEqual({
      object: 'list',
      data: [
        {
          object: 'corridor',
          source_currency: 'USD',
          destination_currency: 'JPY',
          maximum_amount: '1000000.00',
          fee: { fixed: '0.30', basis_points: 40, minimum: '1.00' },
          spread_basis_points: 50,
          rail: 'sandbox',
          scheme: 'Zengin',
          cut_off: { time: '14:00', zone: 'Asia/Tokyo' },
          business_days: ['monday', 'tuesday', 'wednesday', 'thursday', 'friday'],
          // The end of a day in Tokyo.
          estimated_arrival: expect.stringMatching(/T14:59:59\.999Z$/),
        },
      ],
      has_more: false,
    });
    const all = await system.client('GET /v1/corridors');
    expect(z.array(z.object({})).parse(all.body['data'])).toHaveLength(41 * 41);
    const { apiKey } = await createTestAccount(system.database, { mode: 'live', funds: {} });
    const live = await createClient(system.apiUrl, apiKey)('GET /v1/corridors');
    expect(live.body['data']).toEqual([]);
  });

  it('lists the rates that quotes are priced at now', async () => {
    const pair = { source_currency: 'USD', destination_currency: 'JPY' };
    const query = new URLSearchParams(pair).toString();
    const newest = { 'Corridor-Version': '2026-11-15' };
    const quote = await system.client('POST /v1/quotes', {
      form: { ...pair, amount: '125000' },
      headers: newest,
    });
    const { rate, mid_rate, rate_source } = quote.body;
    const spread_basis_points = 50;
    const listed = { object: 'rate', ...pair, rate, mid_rate, spread_basis_points, rate_source };
    const one = await system.client(`GET /v1/rates?${query}`, { headers: newest });
    expect(one.body).toEqual({ object: 'list', data: [listed], has_more: false });
    const older = await system.client(`GET /v1/rates?${query}`);
    expect(older.body).toMatchObject({ data: [{ ...listed, rate: Number(rate) }] });
    const all = await system.client('GET /v1/rates');
    expect(z.array(z.object({})).parse(all.body['data'])).toHaveLength(41 * 41);
  });

  it('lists the required details of a beneficiary', async () => {
    const answer = await system.client('GET /v1/beneficiary_requirements?country=US&currency=USD');
    expect(answer.body).toMatchObject({ object: 'beneficiary_requirements', country: 'US' });
    const field = z.object({ name: z.string(), required: z.boolean(), example: z.string() });
    const fields = z.array(field).parse(answer.body['fields']);
    const form = Object.fromEntries(fields.map(({ name, example }) => [name, example]));
    const stored = await system.client('POST /v1/beneficiaries', { form });
    expect(stored.status).toBe(201);
    for (const [query, param] of [
      ['country=ZZ', 'country'],
      ['country=US&currency=EUR', 'currency'],
    ]) {
      const refused = await system.client(`GET /v1/beneficiary_requirements?${query}`);
      expect(refused).toMatchObject({ status: 422, body: { param } });
    }
  });
});
