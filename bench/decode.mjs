// Measures how many milliseconds it takes to decode and validate a batch in each format. Run it after the
// build. With `node --expose-gc` it also prints by how much the heap grows until the batch can be stored.

import { decodeInSteps, isUndecoded } from '../dist/src/api/decode.js';
import { fingerprintsOf } from '../dist/src/api/idempotency.js';
import { validateBatch } from '../dist/src/api/routes/batchShape.js';
import { inSlices } from '../dist/src/api/slices.js';

const runs = 7;

function batch(items) {
  return Array.from({ length: items }, (_, index) => ({
    beneficiary: `bnf_${String(index).padStart(24, '0')}`,
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
  return pairs.join('&');
}

function csv(payouts) {
  const rows = [Object.keys(payouts[0]), ...payouts.map((payout) => Object.values(payout))];
  return rows.map((row) => row.map((cell) => `"${cell}"`).join(',')).join('\r\n');
}

/** Returns a function that returns the time since its last call, to measure consecutive stages. */
function stopwatch() {
  let lastMs = performance.now();
  return () => {
    const startMs = lastMs;
    lastMs = performance.now();
    return lastMs - startMs;
  };
}

/** Measures the longest time for which the event loop was blocked. */
function watchTurns() {
  const elapsed = stopwatch();
  let longestMs = 0;
  const turn = () => {
    longestMs = Math.max(longestMs, elapsed());
  };
  const ticking = setInterval(turn, 1);
  return () => {
    clearInterval(ticking);
    turn();
    return longestMs;
  };
}

async function measure(contentType, body, items) {
  globalThis.gc?.();
  const before = process.memoryUsage().heapUsed;
  const elapsed = stopwatch();
  const longestTurn = watchTurns();
  const decoded = await inSlices(decodeInSteps(body, contentType, true));
  const decodeMs = elapsed();
  if (isUndecoded(decoded) || decoded.payouts.length !== items) throw new Error('not decoded');
  const validated = await validateBatch(decoded);
  if ('refusals' in validated) throw new Error(JSON.stringify(validated.refusals[0]));
  const validateMs = elapsed();
  const fingerprints = await fingerprintsOf(decoded, 'secret');
  const fingerprintMs = elapsed();
  const turnMs = longestTurn();
  globalThis.gc?.();
  const heapMiB = (process.memoryUsage().heapUsed - before) / 2 ** 20;
  const kept = { decoded, validated, fingerprints };
  return { decodeMs, validateMs, fingerprintMs, turnMs, heapMiB, kept };
}

const median = (numbers) => numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

for (const items of [1_000, 10_000]) {
  const payouts = batch(items);
  const json = (each) => JSON.stringify(each);
  const bodies = {
    form: ['application/x-www-form-urlencoded', form(payouts, ['[', ']'])],
    'form, brackets encoded': ['application/x-www-form-urlencoded', form(payouts, ['%5B', '%5D'])],
    json: ['application/json', json({ payouts })],
    ndjson: ['application/x-ndjson', payouts.map(json).join('\n')],
    csv: ['text/csv', csv(payouts)],
  };
  for (const [name, [contentType, text]] of Object.entries(bodies)) {
    const body = Buffer.from(text);
    const taken = [];
    for (let run = 0; run < runs; run += 1) {
      const { kept: _, ...numbers } = await measure(contentType, body, items);
      taken.push(numbers);
    }
    const of = (stage) => median(taken.map((numbers) => numbers[stage])).toFixed(1);
    const heap = globalThis.gc === undefined ? '' : `, heap +${of('heapMiB')} MiB`;
    console.log(
      `${items} items, ${name}, ${body.length} bytes: decode ${of('decodeMs')} ms, ` +
        `validate ${of('validateMs')} ms, fingerprints ${of('fingerprintMs')} ms, ` +
        `longest turn ${of('turnMs')} ms${heap}`,
    );
  }
}
