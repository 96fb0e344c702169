import { expect, it } from 'vitest';
import {
  type Opening,
  railNameOf,
  refuseClosed,
  refuseUnroutable,
} from '../../src/domain/corridor.js';

it('money of a test account goes to the sandbox bank, and that of a live account never does', () => {
  expect(railNameOf('test')).toBe('sandbox');
  expect(railNameOf('live')).toBeUndefined();
  expect(refuseUnroutable('live')).toMatchObject({
    code: 'corridor_unavailable',
    hint: 'No bank is connected for live accounts.',
  });
});

const rule = (source: string | null, destination: string | null, isOpen = false): Opening => ({
  ...{ source, destination, isOpen },
});

it.each<[string, readonly Opening[], string | undefined]>([
  ['no rule', [], undefined],
  ['a rule of the pair', [rule('USD', 'EUR')], 'destination_currency'],
  ['a rule that opens the pair', [rule('USD', 'EUR', true)], undefined],
  ['a rule of the source', [rule('USD', null)], 'source_currency'],
  ['a rule of the destination', [rule(null, 'EUR')], 'destination_currency'],
  ['a rule of every currency', [rule(null, null)], 'destination_currency'],
  ['a rule of another source', [rule('GBP', 'EUR'), rule('GBP', null)], undefined],
  ['a rule of another destination', [rule('USD', 'GBP'), rule(null, 'GBP')], undefined],
  ['one of two that closes', [rule('USD', 'EUR', true), rule('USD', null)], 'source_currency'],
])('by %s a payout from USD to EUR is refused, if at all, for %s', (_, openings, param) => {
  const refusal = refuseClosed(openings, 'USD', 'EUR');
  expect(refusal?.param).toBe(param);
  if (param === undefined) return expect(refusal).toBeUndefined();
  expect(refusal).toMatchObject({
    code: 'corridor_unavailable',
    expected: 'a corridor that is open',
    received: 'USD to EUR',
    detail:
      'Payouts from USD to EUR are not accepted at present. GET /v1/corridors lists the open corridors.',
  });
  // A quote is replaced as a whole, whichever currency is closed.
  expect(refuseClosed(openings, 'USD', 'EUR', 'quote')?.param).toBe('quote');
});
