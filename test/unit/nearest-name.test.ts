import { expect, test } from 'vitest';
import { nearestName } from '../../src/api/nearestName.js';
import synonyms from '../../src/api/synonyms.json' with { type: 'json' };
import { iso4217 } from '../../src/domain/iso4217.js';

const active = [...iso4217.keys()];
const currencies = Object.entries(synonyms).flatMap(([name, [meant = '']]) =>
  /^[a-z]{3}$/.test(name) && iso4217.has(meant) ? [[name.toUpperCase(), meant] as const] : [],
);

test('a withdrawn ISO 4217 currency suggests its successor, not a similarly spelled code', () => {
  expect(nearestName('HRK', active)).toBe('EUR');
  expect(nearestName('ANG', active)).toBe('XCG');
  expect(currencies.length).toBeGreaterThan(50);
  for (const [historic, successor] of currencies) {
    expect(active, historic).not.toContain(historic);
    expect(nearestName(historic, active)).toBe(successor);
  }
});

test('a code is never read as a similar one, except in another letter case', () => {
  for (const code of ['BTC', 'XAU', 'EUX', 'UDS', 'EURO']) {
    expect(nearestName(code, active), code).toBeUndefined();
  }
  expect(nearestName('usd', active)).toBe('USD');
  expect(nearestName('2025-01-01', ['2026-11-15', '2026-06-01'])).toBeUndefined();
  expect(nearestName('amuont', ['amount'])).toBe('amount');
});
