import { expect, it } from 'vitest';
import { answersTo } from '../../src/activities/lookup.js';

const settled = { key: 'po_1', kind: 'settled', amountMinor: 100n, currency: 'EUR' };
const rejected = { key: 'po_1', kind: 'rejected', code: 'AC04' };
const other = { key: 'po_2', kind: 'rejected', code: 'AC04' };

it.each([
  ['once', [settled, other], [settled, other]],
  ['twice alike', [settled, other, { ...settled }], [settled, other]],
  ['twice and differently', [settled, other, rejected], [other]],
  ['twice, of another amount', [settled, { ...settled, amountMinor: 99n }, other], [other]],
  ['about another order as well', [settled, other, { ...settled, key: 'po_3' }], [settled, other]],
  ['not at all', [other], [other]],
])('a look-up of two keys, one of which the rail answers %s', (_, answers, taken) => {
  const expected = taken.map((answer) => [answer.key, answer]);
  expect([...answersTo(['po_1', 'po_2'], answers)]).toEqual(expected);
});
