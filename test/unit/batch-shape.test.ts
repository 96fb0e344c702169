import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isUndecoded } from '../../src/api/decode.js';
import { maxProblems } from '../../src/api/decoded.js';
import { validate } from '../../src/api/route.js';
import { validateBatch } from '../../src/api/routes/batchShape.js';
import { batchParams } from '../../src/contract/params.js';
import type { Refusal } from '../../src/domain/refusal.js';
import { decodeBody } from '../fixtures/decodeBody.js';

function decode(batch: unknown) {
  const decoded = decodeBody(Buffer.from(JSON.stringify(batch)), 'application/json');
  if (isUndecoded(decoded)) throw new Error(JSON.stringify(decoded));
  return decoded;
}

async function refusalsOf(batch: unknown): Promise<readonly Refusal[]> {
  const result = await validateBatch(decode(batch));
  return 'refusals' in result ? result.refusals : [];
}

async function refused(batch: unknown): Promise<readonly string[]> {
  return (await refusalsOf(batch)).map(({ code, param }) => `${code} ${param}`);
}

const live = { source_currency: 'USD', amount: '100', beneficiary: 'bnf_1' };

function decodeCsv(text: string) {
  const decoded = decodeBody(Buffer.from(text), 'text/csv', true);
  if (isUndecoded(decoded)) throw new Error(JSON.stringify(decoded));
  return decoded;
}

describe('a batch of CSV', () => {
  const header = 'beneficiary,source_currency,amount,notes';

  it('may have a column that is empty in every row, whatever its name', async () => {
    const result = await validateBatch(decodeCsv(`${header}\nbnf_1,USD,100,\nbnf_1,USD,100,\n`));
    expect(result).toMatchObject({ params: { payouts: { length: 2 } } });
  });

  it('is refused once per unknown column, along with the other problems of the request', async () => {
    const body = decodeCsv(`\n${header}\n${'bnf_1,USD,100,July\n'.repeat(300)}`);
    const result = await validateBatch({ ...body, mode: 'some' });
    expect(result).toMatchObject({
      refusals: [
        { code: 'parameter_unknown', param: 'notes', line: 2 },
        { code: 'parameter_invalid', param: 'mode' },
      ],
    });
  });
});

describe('a batch', () => {
  it('has its items in order, and its own parameters', async () => {
    const payouts = Array.from({ length: 1_201 }, (_, index) => ({
      ...live,
      amount: index + 1,
      idempotency_key: `"${index}`,
    }));
    const batch = { payouts, mode: 'all_or_nothing', validate_only: true };
    const result = await validateBatch(decode(batch));
    if ('refusals' in result) throw new Error(JSON.stringify(result.refusals));
    const { payouts: typed, ...others } = result.params;
    expect(others).toEqual({ mode: 'all_or_nothing', validate_only: true });
    expect(typed.map(({ amount }) => amount)).toEqual(payouts.map(({ amount }) => BigInt(amount)));
    expect(typed[1_200]?.idempotency_key).toBe('"1200');
  });

  it.each([
    [{}, { mode: 'best_effort', validate_only: false }],
    [{ validate_only: 'true' }, { mode: 'best_effort', validate_only: true }],
    [{ validate_only: 'false' }, { mode: 'best_effort', validate_only: false }],
    [
      { mode: 'best_effort', validate_only: false },
      { mode: 'best_effort', validate_only: false },
    ],
  ])('with %j is read as %j', async (sent, wanted) => {
    const result = await validateBatch(decode({ payouts: [live], ...sent }));
    expect(result).toMatchObject({ params: wanted });
  });

  it('is validated in slices with the same result as by the schema in one pass', async () => {
    const odd = fc.constantFrom<unknown>('x', 1, true, null, [], {}, '');
    const item = fc.oneof(
      { weight: 5, arbitrary: fc.constant(live) },
      odd,
      fc
        .tuple(fc.constantFrom('amount', 'beneficiary', 'amonut', 'metadata', 'quote'), odd)
        .map(([name, value]) => ({ ...live, [name]: value })),
    );
    const batch = fc.record(
      { payouts: fc.oneof(fc.array(item, { maxLength: 6 }), odd), mode: odd, validate_only: odd },
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(batch, async (sent) => {
        const whole = validate(batchParams, decode(sent));
        const sliced = await validateBatch(decode(sent));
        if ('params' in sliced) expect(sliced).toEqual(whole);
        const found = 'refusals' in sliced ? sliced.refusals : [];
        const wanted = 'refusals' in whole ? whole.refusals : [];
        expect(found).toEqual(expect.arrayContaining([...wanted]));
      }),
    );
  });
});

describe('a batch is refused', () => {
  it('for an idempotency key or a quote that two items share, naming both items', async () => {
    const quoted = (quote: string) => ({ quote, beneficiary: 'bnf_1' });
    const keyed = (idempotency_key: string) => ({ ...live, idempotency_key });
    const payouts = [
      keyed('a'),
      quoted('qt_1'),
      keyed('b'),
      keyed('a'),
      quoted('qt_1'),
      keyed('a'),
    ];
    expect(await refusalsOf({ payouts })).toEqual([
      {
        refused: true,
        code: 'parameter_invalid',
        param: 'payouts[3][idempotency_key]',
        expected: 'unique in the batch',
        hint: 'payouts[0] has the same idempotency_key.',
      },
      {
        refused: true,
        code: 'parameter_invalid',
        param: 'payouts[4][quote]',
        expected: 'unique in the batch: a quote is for one payout',
        hint: 'payouts[1] has the same quote.',
      },
      expect.objectContaining({
        param: 'payouts[5][idempotency_key]',
        hint: 'payouts[0] has the same idempotency_key.',
      }),
    ]);
  });

  it('for all problems at once, including shared keys of items with other problems', async () => {
    const payouts = [
      { ...live, idempotency_key: 'a', amount: '1.5' },
      { ...live, idempotency_key: 'a', colour: 'red' },
      { beneficiary: 'bnf_1', amount: '1' },
      { ...live, quote: 'qt_1' },
      'text',
    ];
    expect(await refused({ payouts, mode: 'x', validate_only: 'yes', more: 1 })).toEqual([
      'parameter_invalid mode',
      'parameter_invalid validate_only',
      'parameter_unknown more',
      'parameter_invalid payouts[0][amount]',
      'parameter_unknown payouts[1][colour]',
      'parameter_invalid payouts[4]',
      'parameter_invalid payouts[1][idempotency_key]',
      'parameter_missing payouts[2][source_currency]',
      'parameters_exclusive payouts[3][source_currency]',
      'parameters_exclusive payouts[3][amount]',
    ]);
  });

  // A header's quotes are stripped, so with them the same text would be two keys, and could pay twice.
  it.each(['', 'two words', 'schlüssel', '"inv-7"', 'k'.repeat(256), 5, null])(
    'for the item key %j',
    async (key) => {
      const payouts = [live, { ...live, idempotency_key: key }];
      expect(await refused({ payouts })).toEqual(['parameter_invalid payouts[1][idempotency_key]']);
    },
  );

  it('for a missing, empty or too long list, whatever its items are', async () => {
    expect(await refused({})).toEqual(['parameter_missing payouts']);
    expect(await refused({ payouts: 'x' })).toEqual(['parameter_invalid payouts']);
    expect(await refused({ payouts: [] })).toEqual(['parameter_invalid payouts']);
    expect(await refusalsOf({ payouts: Array.from({ length: 10_001 }, () => 'x') })).toMatchObject([
      { param: 'payouts', expected: 'a list of 1 to 10,000 payouts', received: 'a list of 10001' },
    ]);
  });

  it('with at most as many problems as a response lists', async () => {
    const payouts = Array.from({ length: 10_000 }, () => ({ x: 1, y: 2, idempotency_key: 'a' }));
    expect(await refused({ payouts })).toHaveLength(maxProblems);
    const alike = Array.from({ length: 10_000 }, () => ({ ...live, idempotency_key: 'a' }));
    expect(await refused({ payouts: alike })).toHaveLength(maxProblems);
  });
});

it('lets other work run while 10,000 items are validated', async () => {
  const payouts = Array.from({ length: 10_000 }, () => live);
  let turns = 0;
  let waiting = setImmediate(function turn() {
    turns += 1;
    waiting = setImmediate(turn);
  });
  const result = await validateBatch(decode({ payouts }));
  clearImmediate(waiting);
  expect(result).toHaveProperty('params');
  expect(turns).toBeGreaterThan(10);
});
