import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listItems } from '../../src/db/batches.js';
import { textOf } from '../fixtures/client.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let beneficiary: string;

beforeAll(async () => {
  // These requests are answered before a workflow is involved.
  system = await startSystem({ startsWorker: false });
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
afterAll(() => system.stop());

/** Two items: the first has a comma and quotes in its reference, the second has metadata. */
function bodies(): Readonly<Record<string, readonly [contentType: string, body: string]>> {
  const live = { source_currency: 'USD', amount: '2000', beneficiary };
  const payouts = [
    { ...live, reference: 'Say "hello", Zoë', idempotency_key: 'item-1' },
    { ...live, metadata: { order: '17' } },
  ];
  const form = new URLSearchParams(
    payouts.flatMap((item, index) =>
      Object.entries(item).map(([name, value]): [string, string] =>
        typeof value === 'string'
          ? [`payouts[${index}][${name}]`, value]
          : [`payouts[${index}][${name}][order]`, value.order],
      ),
    ),
  );
  const csv = [
    'source_currency,amount,beneficiary,reference,idempotency_key,metadata[order]',
    `USD,2000,${beneficiary},"Say ""hello"", Zoë",item-1,`,
    `USD,2000,${beneficiary},,,17`,
  ];
  return {
    form: ['application/x-www-form-urlencoded', form.toString()],
    json: ['application/json', JSON.stringify({ payouts })],
    ndjson: ['application/x-ndjson', payouts.map((item) => JSON.stringify(item)).join('\n')],
    csv: ['text/csv; charset=utf-8', `\ufeff${csv.join('\r\n')}\r\n`],
  };
}

const styles = ['form', 'json', 'ndjson', 'csv'] as const;

function send(style: string, idempotencyKey: string, path = '/v1/batches') {
  const [contentType = '', body = ''] = bodies()[style] ?? [];
  return system.client(`POST ${path}`, { raw: { contentType, body }, idempotencyKey });
}

/** The items, whether they are payouts of this batch or refer to those of another. */
async function stored(batchId: string) {
  return listItems(system.database, batchId, { after: -1, limit: 10, status: null });
}

describe('a batch', () => {
  it.each(styles)('as %s is accepted, and replays in every other format', async (style) => {
    const first = await send(style, `as-${style}`);
    expect(first).toMatchObject({ status: 202, body: { counts: { total: 2 } } });
    const id = textOf(first, 'id');
    const items = { sourceCurrency: 'USD', amount: 2000n, beneficiaryId: beneficiary };
    expect(await stored(id)).toMatchObject([
      { ...items, reference: 'Say "hello", Zoë', metadata: {} },
      { ...items, reference: null, metadata: { order: '17' } },
    ]);
    for (const other of styles) {
      const again = await send(other, `as-${style}`);
      expect(again.status).toBe(202);
      expect(again.headers.get('idempotent-replayed')).toBe('true');
      expect(textOf(again, 'id')).toBe(id);
    }
  });

  it('in lines has its other parameters in the query, where they are validated', async () => {
    const first = await send('csv', 'in-query', '/v1/batches?mode=all_or_nothing');
    expect(first.status).toBe(202);
    const again = await send('ndjson', 'in-query', '/v1/batches?mode=all_or_nothing');
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(textOf(again, 'id')).toBe(textOf(first, 'id'));
    expect(await send('csv', 'in-query')).toMatchObject({
      status: 422,
      body: { code: 'idempotency_key_reused', param: 'mode' },
    });
  });

  it.each(styles)(
    'as %s takes its options in the query or in the body, but not in both',
    async (style) => {
      const answer = await send(
        style,
        'never',
        '/v1/batches?validate_only=true&mode=all_or_nothing',
      );
      expect(answer).toMatchObject({
        status: 200,
        body: { object: 'batch_preview', mode: 'all_or_nothing', counts: { total: 2 } },
      });
      const [contentType = '', body = ''] = bodies()[style] ?? [];
      const both = {
        form: `${body}&mode=best_effort`,
        json: body.replace('{', '{"mode":"best_effort",'),
      };
      const raw = { contentType, body: style === 'form' || style === 'json' ? both[style] : body };
      const twice = await system.client('POST /v1/batches?mode=best_effort&mode=best_effort', {
        raw,
      });
      expect(twice).toMatchObject({ status: 400, body: { param: 'mode' } });
      if (!(style in both)) return;
      const once = await system.client('POST /v1/batches?mode=best_effort', { raw });
      expect(once).toMatchObject({
        status: 400,
        body: { param: 'mode', expected: 'sent in the body, not in the query' },
      });
    },
  );

  it.each([
    ['csv', '?mode=some', { code: 'parameter_invalid', param: 'mode' }],
    [
      'csv',
      '?mod=best_effort',
      { code: 'parameter_unknown', detail: expect.stringContaining('Did you mean mode?') },
    ],
    ['ndjson', '?payouts[0][amount]=1', { code: 'parameter_invalid', param: 'payouts' }],
    ['ndjson', '?mode=%ff', { code: 'parameter_invalid', param: 'mode' }],
    ['form', '?mod=best_effort', { code: 'parameter_unknown', param: 'mod' }],
    ['json', '?payouts[0][amount]=1', { code: 'parameter_invalid', param: 'payouts' }],
  ])('as %s with the query %s is refused', async (style, query, body) => {
    const answer = await send(style, 'never', `/v1/batches${query}`);
    expect(answer).toMatchObject({ status: 400, body });
  });

  it('with no lines is refused for missing payouts', async () => {
    for (const contentType of ['text/csv', 'application/x-ndjson']) {
      const answer = await system.client('POST /v1/batches', { raw: { contentType, body: '' } });
      expect(answer).toMatchObject({ status: 400, body: { param: 'payouts' } });
    }
  });

  it.each([
    ['ndjson', '{"amount":"x"}\n'],
    ['csv', `amount\n${'x\n'.repeat(10_001)}`],
  ])('of 10,001 items as %s is refused by naming the limit', async (style, text) => {
    const contentType = style === 'csv' ? 'text/csv' : 'application/x-ndjson';
    const body = style === 'csv' ? text : text.repeat(10_001);
    const answer = await system.client('POST /v1/batches', { raw: { contentType, body } });
    expect(answer).toMatchObject({ status: 400, body: { param: 'payouts' } });
    expect(textOf(answer, 'expected')).toContain('10,000');
  });
});

it.each(['ndjson', 'csv'])('%s is refused where one object is asked for', async (style) => {
  const answer = await send(style, 'elsewhere', '/v1/payouts');
  expect(answer).toMatchObject({ status: 415, body: { code: 'content_type_unsupported' } });
  expect(textOf(answer, 'expected')).toBe(
    'application/x-www-form-urlencoded or application/json, encoded as UTF-8',
  );
});
