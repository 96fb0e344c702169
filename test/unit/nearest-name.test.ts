import { expect, test } from 'vitest';
import { nearestName } from '../../src/api/nearestName.js';
import synonyms from '../../src/api/synonyms.json' with { type: 'json' };
import { iso4217 } from '../../src/domain/iso4217.js';

const active = [...iso4217.keys()];
const currencies = Object.entries(synonyms).flatMap(([name, [meant = '']]) =>
  /^[a-z]{3}$/.test(name) && iso4217.has(meant) ? [[name.toUpperCase(), meant] as const] : [],
);

test('a currency that has left ISO 4217 means its successor, and not one that is spelled like it', () => {
  expect(nearestName('HRK', active)).toBe('EUR');
  expect(nearestName('ANG', active)).toBe('XCG');
  expect(currencies.length).toBeGreaterThan(50);
  for (const [historic, successor] of currencies) {
    expect(active, historic).not.toContain(historic);
    expect(nearestName(historic, active)).toBe(successor);
  }
});

test('a code is never taken for another one, but for its letters in another case', () => {
  for (const code of ['BTC', 'XAU', 'EUX', 'UDS', 'EURO']) {
    expect(nearestName(code, active), code).toBeUndefined();
  }
  expect(nearestName('usd', active)).toBe('USD');
  expect(nearestName('2025-01-01', ['2026-11-15', '2026-06-01'])).toBeUndefined();
  expect(nearestName('amuont', ['amount'])).toBe('amount');
});
