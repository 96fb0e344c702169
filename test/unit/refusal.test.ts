import { expect, test } from 'vitest';
import { isRefusal, meaningOf, refuse, sentenceOf } from '../../src/domain/refusal.js';

test('a refusal has its code and the details that are known', () => {
  expect(refuse('not_found')).toEqual({ refused: true, code: 'not_found' });
  expect(refuse('amount_too_small', { param: 'amount', received: '1' })).toEqual({
    refused: true,
    code: 'amount_too_small',
    param: 'amount',
    received: '1',
  });
});

test('only a refusal is recognised as one, whatever else a function returns', () => {
  expect(isRefusal(refuse('not_found'))).toBe(true);
  for (const value of [{}, [], { code: 'not_found' }, { refused: false }, { refused: 'yes' }]) {
    expect(isRefusal(value)).toBe(false);
  }
});

test.each([
  ['parameter_missing', 400, 'A required parameter is missing'],
  ['cursor_not_found', 422, 'The list has no such object to continue from'],
  ['quote_expired', 422, 'The quote has expired'],
  ['rate_unavailable', 503, 'No current rate for this corridor'],
  ['internal_error', 500, 'An internal error occurred'],
] as const)('the code %s has the status %i and a title', (code, status, title) => {
  expect(meaningOf(code)).toEqual({ status, title });
});

test('text that was cut in the middle of a character can be stored as JSON', () => {
  const cut = 'Zoë \u{1F644}'.slice(0, 5);
  const { received, detail } = refuse('parameter_invalid', { received: cut, detail: cut });
  expect([received, detail]).toEqual(['Zoë \uFFFD', 'Zoë \uFFFD']);
});

test('a parameter without a name leaves no gap in the sentence', () => {
  const refusal = refuse('parameter_invalid', { param: '', expected: 'a name that is not empty' });
  expect(sentenceOf(refusal)).toBe('A parameter is malformed: expected a name that is not empty.');
});
