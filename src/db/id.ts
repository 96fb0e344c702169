import { randomFillSync } from 'node:crypto';

const prefixes = {
  account: 'acc',
  apiKey: 'key',
  quote: 'qt',
  payout: 'po',
  beneficiary: 'bnf',
  batch: 'bat',
  event: 'evt',
  webhookEndpoint: 'we',
  webhookProbe: 'prb',
  request: 'req',
  operatorAction: 'op',
} as const;

export type IdKind = keyof typeof prefixes;

/** Crockford's alphabet in lower case: no letter is mistaken for a digit. */
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** Random bytes for 256 ids: to ask for 16 at a time costs as much as a thousand. */
const pool = Buffer.alloc(4096);
let used = pool.length;

/**
 * A new id: prefix, underscore, 26 characters. The first ten are the time in milliseconds,
 * which keeps neighbours in an index together and lets lists be ordered by id; the other
 * sixteen are 80 random bits.
 */
export function newId(kind: IdKind): string {
  let text = '';
  if (used + 16 > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  for (const byte of pool.subarray(used, used + 16)) text += alphabet.charAt(byte % 32);
  used += 16;
  return firstId(kind, Date.now()) + text;
}

/** What the ids of so many days ago begin with: what is kept for as long, and has a smaller one, can go. */
export function oldestKept(kind: IdKind, days: number): string {
  return firstId(kind, Date.now() - days * 24 * 60 * 60_000);
}

/** What the ids of a time begin with: those from before it are less, all others greater. */
export function firstId(kind: IdKind, timeMs: number): string {
  let time = timeMs;
  let text = '';
  for (let i = 0; i < 10; i += 1) {
    text = alphabet.charAt(time % 32) + text;
    time = Math.floor(time / 32);
  }
  return `${prefixes[kind]}_${text}`;
}
