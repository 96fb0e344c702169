import { describe, expect, it } from 'vitest';
import { statementAnswer } from '../../src/rails/sandbox/wire.js';

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

describe('a line of a statement', () => {
  it('moves up to what the database holds', () => {
    expect(read({}).data?.lines).toMatchObject([
      { amountMinor: 9_223_372_036_854_775_807n, bookedAt: line.at },
    ]);
  });

  it.each([
    { amount: '0' },
    { amount: '9223372036854775808' },
    { amount: '-1' },
    // PostgreSQL would take each of these for a time.
    { at: 'now' },
    { at: 'infinity' },
    { at: '2026-11-20T12:00:00' },
  ])('is not believed with %o', (changes) => {
    expect(read(changes).success).toBe(false);
  });
});
