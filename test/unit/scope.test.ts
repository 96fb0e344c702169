import { expect, it } from 'vitest';
import { allScopes, isScope, scopes } from '../../src/domain/scope.js';

it.each(scopes)('%s is a scope of a key', (scope) => {
  expect(isScope(scope)).toBe(true);
});

it.each(['', 'READ', 'read ', 'payouts', 'constructor'])('%j is none', (text) => {
  expect(isScope(text)).toBe(false);
});

it('a key without any stated reads and writes everything', () => {
  expect(allScopes).toEqual(['read', 'write']);
});
