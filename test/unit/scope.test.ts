import { expect, it } from 'vitest';
import { allScopes, isScope, scopes } from '../../src/domain/scope.js';

it.each(scopes)('%s is a scope of an API key', (scope) => {
  expect(isScope(scope)).toBe(true);
});

it.each(['', 'READ', 'read ', 'payouts', 'constructor'])('%j is not a scope', (text) => {
  expect(isScope(text)).toBe(false);
});

it('a key without stated scopes reads and writes everything', () => {
  expect(allScopes).toEqual(['read', 'write']);
});
