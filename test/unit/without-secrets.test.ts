import { describe, expect, it } from 'vitest';
import { newId } from '../../src/db/id.js';
import { secretFields } from '../../src/domain/fieldRule.js';
import { secretNames, withoutSecrets } from '../../src/log.js';

it('a log line hides the same secrets as a response', () => {
  expect(secretNames).toEqual(expect.arrayContaining([...secretFields]));
});

describe('a text that is quoted back', () => {
  it.each([
    ['GET /v1/payouts/cor_test_0123abcdXYZ', 'GET /v1/payouts/cor_test_…'],
    ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'whsec_…'],
    ['received DE89370400440532013000.', 'received …3000.'],
    ['DE89 3704 0044 0532 0130 00', '…30 00'],
    ['gb29nwbk60161331926819', '…6819'],
  ])('shows no secret: %s', (text, shown) => {
    expect(withoutSecrets(text)).toBe(shown);
  });

  it.each(['125000', 'payouts[17][amount]', 'POST /v1/quotes', 'EUR', '', newId('payout')])(
    'is unchanged without a secret: %s',
    (text) => {
      expect(withoutSecrets(text)).toBe(text);
    },
  );
});
