import { expect, test } from 'vitest';
import {
  isRefusal,
  meaningOf,
  type Refusal,
  refuse,
  revealsFunds,
  sentenceOf,
  shortened,
} from '../../src/domain/refusal.js';

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

const amount = { param: 'amount', expected: 'a whole number' } as const;

test.each<[Omit<Refusal, 'refused'>, string]>([
  [{ code: 'not_found' }, 'No such object.'],
  [
    { code: 'payout_not_cancelable', expected: 'an open payout', received: 'settled' },
    'The payout can no longer be canceled: expected an open payout, received settled.',
  ],
  [{ code: 'parameter_missing', ...amount }, 'amount is missing: send a whole number.'],
  [
    { code: 'api_key_missing', param: 'Authorization', expected: 'an API key' },
    'Authorization is missing: send an API key.',
  ],
  [
    { code: 'parameter_unknown', param: 'amuont', expected: 'amount' },
    'amuont is not a parameter of this request, which accepts amount.',
  ],
  [
    { code: 'parameter_unknown', param: 'amuont', expected: 'amount', meant: 'amount' },
    'amuont is not a parameter of this request. Did you mean amount?',
  ],
  [
    { code: 'parameter_invalid', ...amount, received: '' },
    'amount must be a whole number, but it is empty.',
  ],
  [{ code: 'parameter_invalid', ...amount }, 'amount must be a whole number.'],
  [
    { code: 'parameter_invalid', ...amount, received: 'ten', hint: 'Send 10.' },
    'amount must be a whole number, not "ten". Send 10.',
  ],
  [
    { code: 'parameter_invalid', ...amount, received: 'null', isBare: true, line: 3 },
    'Line 3: amount must be a whole number, not null.',
  ],
  [{ code: 'parameter_invalid', ...amount, detail: 'Too much.' }, 'Too much.'],
])('%o reads: %s', (refusal, sentence) => {
  expect(sentenceOf(refusal)).toBe(sentence);
});

test('a text is shortened only if it is too long', () => {
  expect(['four', 'fives'].map((text) => shortened(text, 4))).toEqual(['four', 'five…']);
});

test('refusals for want of money and by limits reveal funds', () => {
  const codes = ['insufficient_funds', 'limit_exceeded', 'limit_reached'] as const;
  expect(codes.map(revealsFunds)).toEqual([true, true, false]);
});
