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

const date = '2026-11-20';
const statement = {
  ...{ date, closed: true, entries: [line] },
  totals: { EUR: { debits: line.amount, credits: '0' } },
};
const answered = (changes: object) => statementAnswer(date).safeParse({ ...statement, ...changes });
const read = (changes: object) => answered({ entries: [{ ...line, ...changes }] });

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
    // It would refuse these: the year 10000, and the year 0.
    { at: '9999-12-31T23:59:59-14:00' },
    { at: '0000-01-01T00:00:00Z' },
  ])('is refused with %o', (changes) => {
    expect(read(changes).success).toBe(false);
  });
});

describe('a statement', () => {
  const credit = { ...line, direction: 'credit', amount: '1' };
  const totals = { EUR: { debits: line.amount, credits: '1' } };

  it('is read if its lines add up to its totals, beyond what the database can hold too', () => {
    expect(answered({ entries: [line, credit], totals }).data?.lines).toHaveLength(2);
    const twice = { EUR: { debits: '18446744073709551614', credits: '0' } };
    expect(answered({ entries: [line, line], totals: twice }).data?.lines).toHaveLength(2);
    expect(answered({ entries: [], totals: {} }).data?.lines).toEqual([]);
  });

  it.each([
    ['is of another day', { date: '2026-11-19' }],
    ['does not say of which day it is', { date: undefined }],
    ['lacks a debit', { entries: [] }],
    ['lacks a credit', { totals }],
    ['has a line too many', { entries: [line, line] }],
    ['has a line in a currency without a total', { entries: [line, { ...line, currency: 'USD' }] }],
    ['has a line on the other side', { entries: [{ ...line, direction: 'credit' }] }],
    ['has no totals', { totals: undefined }],
  ])('is no proof of anything if it %s', (_which, changes) => {
    expect(answered(changes).success).toBe(false);
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
