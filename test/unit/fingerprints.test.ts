import { createHmac } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { isUndecoded } from '../../src/api/decode.js';
import { fingerprintsOf } from '../../src/api/idempotency.js';
import { decodeBody } from '../fixtures/decodeBody.js';

function decode(body: unknown) {
  const decoded = decodeBody(Buffer.from(JSON.stringify(body)), 'application/json');
  if (isUndecoded(decoded)) throw new Error(JSON.stringify(decoded));
  return decoded;
}

/** Digests are stored for ever with payouts and batches, so the digested text must never change. */
function digest(text: string): string {
  return createHmac('sha256', 'secret').update(text).digest('base64url').slice(0, 16);
}

describe('fingerprints', () => {
  it('cover each parameter, and each item of a list as a whole', async () => {
    const decoded = decode({
      metadata: { b: true, 1: 'x' },
      events: ['payout.sent'],
      payouts: [{ reference: 'ü', amount: 10 }, {}, { metadata: { y: null, x: 'z' } }],
      amount: 10,
    });
    expect(await fingerprintsOf(decoded, 'secret')).toEqual({
      amount: digest('amount\x0010\0'),
      'events[0]': digest('events[0]\0payout.sent\0'),
      'metadata[1]': digest('metadata[1]\0x\0'),
      'metadata[b]': digest('metadata[b]\0true\0'),
      'payouts[0]': digest('payouts[0][amount]\x0010\0payouts[0][reference]\0ü\0'),
      'payouts[2]': digest('payouts[2][metadata][x]\0z\0payouts[2][metadata][y]\0\0'),
    });
  });

  it('differ when one value of one item in 10,000 differs', async () => {
    const payouts = Array.from({ length: 10_000 }, (_, index) => ({ amount: index }));
    const first = await fingerprintsOf(decode({ payouts }), 'secret');
    const other = payouts.with(7_000, { amount: 1 });
    const second = await fingerprintsOf(decode({ payouts: other }), 'secret');
    expect(Object.keys(first)).toHaveLength(10_000);
    const different = Object.keys(first).filter((name) => first[name] !== second[name]);
    expect(different).toEqual(['payouts[7000]']);
  });
});
