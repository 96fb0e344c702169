// Milliseconds to decode a batch, as a form and as JSON; run it after the build.
import { decodeBody, isUndecoded } from '../dist/api/decode.js';

const runs = 7;

function batch(items) {
  return Array.from({ length: items }, (_, index) => ({
    beneficiary: `ben_${String(index).padStart(24, '0')}`,
    amount: 100_000 + index,
    source_currency: 'USD',
    destination_currency: 'EUR',
    fixed_side: 'source',
    reference: `Invoice ${index}, März`,
  }));
}

function form(payouts, brackets) {
  const [open, close] = brackets;
  const pairs = payouts.flatMap((payout, index) =>
    Object.entries(payout).map(
      ([name, value]) =>
        `payouts${open}${index}${close}${open}${name}${close}=${encodeURIComponent(value)}`,
    ),
  );
  return Buffer.from(pairs.join('&'));
}

for (const items of [1_000, 10_000]) {
  const payouts = batch(items);
  const bodies = {
    form: ['application/x-www-form-urlencoded', form(payouts, ['[', ']'])],
    'form, brackets encoded': ['application/x-www-form-urlencoded', form(payouts, ['%5B', '%5D'])],
    json: ['application/json', Buffer.from(JSON.stringify({ payouts }))],
  };
  for (const [name, [contentType, body]] of Object.entries(bodies)) {
    const timesMs = Array.from({ length: runs }, () => {
      const startMs = performance.now();
      const decoded = decodeBody(body, contentType);
      if (isUndecoded(decoded) || decoded.payouts.length !== items) throw new Error('not decoded');
      return performance.now() - startMs;
    }).sort((a, b) => a - b);
    const [fastest] = timesMs;
    console.log(
      `${items} items, ${name}, ${body.length} bytes: median ${timesMs[3].toFixed(1)} ms, ` +
        `fastest ${fastest.toFixed(1)} ms, slowest ${timesMs.at(-1).toFixed(1)} ms`,
    );
  }
}
