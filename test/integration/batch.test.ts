import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf } from '../fixtures/client.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const counts = z.record(z.string(), z.number());

describe('a batch', () => {
  let system: TestSystem;
  let receiver: Receiver;
  let beneficiary: string;

  beforeAll(async () => {
    system = await startSystem();
    receiver = await startReceiver();
    const stored = await system.client('POST /v1/beneficiaries', {
      form: {
        type: 'business',
        name: 'Analytical Engines',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE89370400440532013000',
      },
    });
    beneficiary = textOf(stored, 'id');
  });
  afterAll(async () => {
    await receiver.close();
    await system.stop();
  });

  const item = (reference: string, amount = '2000') => ({
    source_currency: 'USD',
    amount,
    beneficiary,
    reference,
  });

  it('ends with every item accounted for once, and sends one event', async () => {
    const { client, database, bank } = system;
    await client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['batch.completed'] },
    });
    const references = ['first', 'simulate: reject AC04', 'third', 'fourth'];
    const json = { payouts: references.map((reference) => item(reference)) };
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => client('POST /v1/batches', { json, idempotencyKey: 'one' })),
    );
    expect(answers.map((answer) => answer.status)).toEqual(Array(5).fill(202));
    const ids = new Set(answers.map((answer) => textOf(answer, 'id')));
    expect(ids.size).toBe(1);
    const [id = ''] = ids;

    const completed = await receiver.next(({ body }) => body.includes(id));
    expect(JSON.parse(completed.body)).toMatchObject({
      type: 'batch.completed',
      data: { id, status: 'completed', counts: { total: 4, settled: 3, failed: 1, pending: 0 } },
    });
    // The event belongs to the batch, not to a payout.
    const listed = await client(`GET /v1/events?batch=${id}`);
    expect(listed.body['data']).toMatchObject([{ type: 'batch.completed', data: { id } }]);
    const [payout] = await database<{ id: string }[]>`
      select id from payouts where batch_id = ${id} and status = 'failed'`;
    const ofPayout = await client(`GET /v1/events?payout=${payout?.id}`);
    expect(ofPayout.body['data']).toMatchObject([{ type: 'payout.failed' }]);
    expect(await client(`GET /v1/events?payout=${payout?.id}&batch=${id}`)).toMatchObject({
      status: 400,
      body: { code: 'parameters_exclusive', param: 'batch' },
    });
    const batch = await client(`GET /v1/batches/${id}`);
    const { total, ...byStatus } = counts.parse(batch.body['counts']);
    expect(Object.values(byStatus).reduce((sum, count) => sum + count, 0)).toBe(total);
    expect(await unbalancedCurrencies(database)).toEqual([]);
    const keys = (await bank.journal())
      .filter((line) => line.type === 'transfer')
      .map((line) => line.key);
    expect(new Set(keys).size).toBe(3);
    expect(keys).toHaveLength(3);
  });

  it('stores nothing when an item is malformed, and names every malformed item', async () => {
    const { client, database } = system;
    const before = await database`select count(*)::int as count from batches`;
    const answer = await client('POST /v1/batches', {
      form: {
        'payouts[0][source_currency]': 'USD',
        'payouts[0][amount]': '1.5',
        'payouts[0][beneficiary]': beneficiary,
        'payouts[1][amonut]': '100',
        'payouts[1][beneficiary]': beneficiary,
      },
    });
    expect(answer.status).toBe(400);
    const errors = z.array(z.object({ param: z.string() })).parse(answer.body['errors']);
    expect(errors.map((error) => error.param)).toEqual(
      expect.arrayContaining(['payouts[0][amount]', 'payouts[1][amonut]']),
    );
    expect(JSON.stringify(answer.body)).toContain('Did you mean amount?');
    expect(await database`select count(*)::int as count from batches`).toEqual(before);
  });

  it('refuses 10,001 items by naming the limit', async () => {
    const { client } = system;
    const payouts = Array.from({ length: 10_001 }, (_, index) => item(`n ${index}`, '1'));
    const tooMany = await client('POST /v1/batches', { json: { payouts } });
    expect(tooMany).toMatchObject({ status: 400, body: { param: 'payouts' } });
    expect(textOf(tooMany, 'expected')).toContain('10,000');
  });
});
