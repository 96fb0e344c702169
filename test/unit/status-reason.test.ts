import { describe, expect, it } from 'vitest';
import { reasonCodes } from '../../sandbox/bank/reasonCodes.js';
import { refusalCodes, refuse } from '../../src/domain/refusal.js';
import { statusReasons, statusReasonText } from '../../src/domain/statusReason.js';

describe('the text of a status reason', () => {
  it('explains every code that the sandbox bank can give', () => {
    for (const code of [...reasonCodes.keys(), 'canceled', 'released_by_operator', 'corrected']) {
      const { text = '', action = '' } = statusReasons.get(code) ?? {};
      expect(statusReasonText(code, null)).toBe(text);
      expect(text).toMatch(/^[A-Z].*\.$/);
      expect(action).toMatch(/^[A-Z].*\.$/);
    }
  });

  it('quotes a code that is not known yet', () => {
    expect(statusReasonText('ZZ99', null)).toBe('The bank gave the reason ZZ99.');
  });

  it('is the sentence of a refusal, which explains what to change', () => {
    const refusal = refuse('quote_used', { param: 'quote', detail: 'It was used by po_1.' });
    expect(statusReasonText('quote_used', refusal)).toBe('It was used by po_1.');
    for (const code of refusalCodes) expect(statusReasonText(code, null)).toMatch(/\w\.$/);
  });

  it('shows the balance only to keys that may read it', () => {
    const refusal = refuse('insufficient_funds', { detail: '1.00 USD is available.' });
    expect(statusReasonText('insufficient_funds', refusal)).toBe(
      'The available balance is too low.',
    );
  });
});
