import { describe, expect, it } from 'vitest';
import { callbackBody, lookupAnswer, statementAnswer } from '../../src/rails/sandbox/wire.js';

const line = {
  key: 'co_po_1',
  bank_reference: 'bank-1',
  direction: 'debit',
  amount: '9223372036854775807',
  currency: 'EUR',
  at: '2026-11-20T12:00:00+01:00',
};

const read = (changes: object) =>
  statementAnswer.safeParse({ closed: true, entries: [{ ...line, ...changes }] });

describe('a statement line', () => {
  it('may have any amount that fits the database', () => {
    expect(read({}).data?.lines).toMatchObject([
      { amountMinor: 9_223_372_036_854_775_807n, bookedAt: '2026-11-20T11:00:00.000Z' },
    ]);
  });

  it.each([
    { amount: '0' },
    { amount: '9223372036854775808' },
    { amount: '-1' },
    // PostgreSQL would accept each of these as a time.
    { at: 'now' },
    { at: 'infinity' },
    { at: '2026-11-20T12:00:00' },
  ])('is refused with %o', (changes) => {
    expect(read(changes).success).toBe(false);
  });
});

it('text of the bank is shown to people as one line that it cannot forge', () => {
  const forged = `SBX1\u202e\n${'x'.repeat(200)}`;
  const [shown] = read({ bank_reference: forged, key: forged }).data?.lines ?? [];
  for (const text of [shown?.bankReference, shown?.key]) {
    expect(text).toBe(`SBX1??${'x'.repeat(134)}`);
  }
});

describe('a time of the bank', () => {
  it.each([
    // PostgreSQL rejects both, because its offsets end at 15:59.
    ['2026-11-20T23:00:00+23:59', '2026-11-19T23:01:00.000Z'],
    ['2026-11-20T00:00:00-16:00', '2026-11-20T16:00:00.000Z'],
  ])('%s is converted to one that the database accepts', (at, utc) => {
    const fields = { key: 'po_1', amount: '100', currency: 'EUR', at };
    const { results } = lookupAnswer.parse({ results: [{ ...fields, state: 'settled' }] });
    expect(results).toMatchObject([{ at: utc }]);
    const { events } = callbackBody.parse({
      events: [{ ...fields, id: 'evt_1', type: 'settled' }],
    });
    expect(events).toMatchObject([{ report: { at: utc } }]);
    expect(read({ at }).data?.lines).toMatchObject([{ bookedAt: utc }]);
  });
});
