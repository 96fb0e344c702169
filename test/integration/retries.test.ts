import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { storeStatement } from '../../src/db/statements.js';
import {
  type ApiAnswer,
  type ApiClient,
  createClient,
  textOf,
  untilStatus,
} from '../fixtures/client.js';
import { openPayer, type Payer, rowOf, untilParked, untilSubmitted } from '../fixtures/payer.js';
import { addApiKey, unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let payer: Payer;
let beneficiary: string;

beforeAll(async () => {
  system = await startSystem({ decisionLimitMs: 5_000 });
  payer = await openPayer(system);
  const id = await payer.send('simulate: reject AC04');
  beneficiary = (await rowOf(system, id)).beneficiaryId;
});
afterAll(async () => {
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

async function failed(): Promise<string> {
  const id = await payer.send('simulate: reject AC04');
  await untilStatus(payer.client, id, 'failed');
  return id;
}

function retry(
  of: string,
  options: {
    client?: ApiClient;
    reference?: string;
    amount?: string;
    idempotencyKey?: string;
  } = {},
): Promise<ApiAnswer> {
  const { client = payer.client, reference = 'Invoice 17', amount = '1000', ...rest } = options;
  const form = { source_currency: 'USD', amount, beneficiary, reference, retry_of: of };
  return client('POST /v1/payouts', { form, ...rest });
}

/** Stores a report of the bank that it has paid, which is not applied yet. */
async function storePaid(id: string): Promise<void> {
  const { receiveMinor, destinationCurrency: currency } = await rowOf(system, id);
  const fact = { kind: 'settled', amountMinor: String(receiveMinor), currency, at: null };
  await system.database`
    insert into rail_inbox (rail, rail_event_id, rail_key, payout_id, fact)
    values ('sandbox', ${`late-${id}`}, ${id}, ${id}, ${system.database.json(fact)})`;
}

const refused = (detail: string) => ({
  status: 422,
  body: { code: 'retry_refused', param: 'retry_of', detail: expect.stringContaining(detail) },
});

describe('a payout that retries another one', () => {
  it('names it, and is its only retry', async () => {
    const first = await failed();
    const answer = await retry(first);
    expect(answer).toMatchObject({ status: 201, body: { retry_of: first } });
    const second = textOf(answer, 'id');
    await untilStatus(payer.client, second, 'settled');
    expect(await retry(first)).toMatchObject(refused(`${first} was retried by ${second}.`));
    expect(await retry(second)).toMatchObject(refused(`${second} is settled`));
  });

  it('may itself be retried when it failed', async () => {
    const first = await failed();
    const second = textOf(await retry(first, { reference: 'simulate: reject AC06' }), 'id');
    await untilStatus(payer.client, second, 'failed');
    expect(await retry(second)).toMatchObject({ status: 201, body: { retry_of: second } });
  });

  it('is accepted once if several are sent concurrently', async () => {
    const first = await failed();
    const answers = await Promise.all(Array.from({ length: 4 }, () => retry(first)));
    const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
    expect(statuses).toEqual([201, 422, 422, 422]);
    const rows = await system.database`select from payouts where retry_of = ${first}`;
    expect(rows.count).toBe(1);
  });

  it('is replayed for its idempotency key, and so is its refusal', async () => {
    const first = await failed();
    const once = await retry(first, { idempotencyKey: 'retry-1' });
    const again = await retry(first, { idempotencyKey: 'retry-1' });
    expect(textOf(again, 'id')).toBe(textOf(once, 'id'));
    const late = await retry(first, { idempotencyKey: 'retry-2' });
    expect(late).toMatchObject(refused('new idempotency key'));
    const replayed = await retry(first, { idempotencyKey: 'retry-2' });
    expect(replayed).toMatchObject(refused(`${first} was retried by ${textOf(once, 'id')}.`));
    expect(replayed.headers.get('idempotent-replayed')).toBe('true');
    const other = await retry(await failed(), { idempotencyKey: 'retry-2' });
    expect(textOf(other, 'detail')).toContain('belongs to a request that was refused');
  });

  it('is refused if the first one may still be paid', async () => {
    const open = await payer.send('simulate: never settle');
    expect(await retry(open)).toMatchObject(refused(`${open} is `));
    const first = await failed();
    await system.database`
      update payouts set attention_reason = 'paid_after_release', attention_detail = '',
             attention_at = now() where id = ${first}`;
    expect(await retry(first)).toMatchObject(refused(`The bank may have paid ${first}`));
  });

  it('is refused if a report about the first one waits to be applied, even if it arrives later', async () => {
    const [known, unreported] = [await failed(), await failed()];
    await system.stopWorker();
    await storePaid(known);
    expect(await retry(known)).toMatchObject(refused(`The bank may have paid ${known}`));
    const answer = await retry(unreported);
    expect(answer).toMatchObject({ status: 202, body: { status: 'pending' } });
    await storePaid(unreported);
    await system.startWorker();
    const decided = await untilStatus(payer.client, textOf(answer, 'id'), 'failed');
    expect(decided.body).toMatchObject({ status_reason: 'retry_refused' });
    // Nor by a retry of the retry.
    const next = await retry(textOf(answer, 'id'));
    expect(next).toMatchObject(refused(`The bank may have paid ${textOf(answer, 'id')}`));
  });

  it('does not show a key that may not read what became of the first one meanwhile', async () => {
    const first = await failed();
    const key = await addApiKey(system.database, payer.accountId, { scopes: ['payouts:create'] });
    const client = createClient(system.apiUrl, key);
    const repeated = { client, idempotencyKey: `unread-${first}` };
    await system.stopWorker();
    const asked = await retry(first, repeated);
    expect(asked.status).toBe(202);
    await storePaid(first);
    await system.startWorker();
    await untilStatus(payer.client, textOf(asked, 'id'), 'failed');
    const answer = await retry(first, repeated);
    expect(answer).toMatchObject({ status: 422, body: { code: 'retry_refused' } });
    expect(textOf(answer, 'detail')).not.toContain('may have paid');
    const { body } = await payer.client(`GET /v1/payouts/${textOf(asked, 'id')}`);
    expect(JSON.stringify(body)).toContain('may have paid');
  });

  it('is not sent again if the first one may have been paid since, and the operator reads that it was sent', async () => {
    const first = await failed();
    const id = textOf(await retry(first, { reference: 'simulate: timeout then nothing' }), 'id');
    await untilSubmitted(system, id);
    await storePaid(first);
    const { attentionReason, attentionDetail } = await untilParked(system, id);
    expect(attentionReason).toBe('outcome_unknown');
    expect(attentionDetail).toMatch(/may have been paid in the meantime: not sent again\.$/);
  });

  it('is refused if the bank’s statement shows the first one as paid, unless the money is back', async () => {
    const first = await failed();
    const { receiveMinor } = await rowOf(system, first);
    const booked = { bankReference: 'bank-1', amountMinor: receiveMinor ?? 0n, currency: 'EUR' };
    const at = new Date().toISOString();
    const line = (direction: 'debit' | 'credit') =>
      ({ ...booked, key: first, direction, bookedAt: at }) as const;
    const statement = { rail: 'sandbox', date: at.slice(0, 10), closed: false };
    await storeStatement(system.database, { ...statement, lines: [line('debit')] });
    expect(await retry(first)).toMatchObject(refused(`The bank may have paid ${first}`));
    const lines = [line('debit'), line('credit')];
    await storeStatement(system.database, { ...statement, lines });
    expect(await retry(first)).toMatchObject({ status: 201, body: { retry_of: first } });
  });

  it('is the one to retry next if it was refused', async () => {
    const first = await failed();
    const answer = await retry(first, { amount: '99999900', idempotencyKey: 'too-much' });
    expect(answer).toMatchObject({ status: 422, body: { code: 'insufficient_funds' } });
    const second = textOf(answer, 'payout');
    expect(textOf(answer, 'detail')).toContain(`retry_of ${second}`);
    expect(await retry(second)).toMatchObject({ status: 201, body: { retry_of: second } });
  });

  it('is refused for a payout of another account, as for one that does not exist', async () => {
    const first = await failed();
    const other = await openPayer(system);
    const absent = await retry('po_0', { client: other.client });
    expect(absent).toMatchObject(refused('retry_of must be a payout of this account'));
    const foreign = await retry(first, { client: other.client });
    expect(
      JSON.stringify(foreign.body)
        .replaceAll(first, 'po_0')
        .replace(/req_\w+/, ''),
    ).toBe(JSON.stringify(absent.body).replace(/req_\w+/, ''));
  });
});
