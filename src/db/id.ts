import { randomFillSync } from 'node:crypto';
import { exactlyOne, type Sql } from './client.js';

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

/** Crockford's Base32 alphabet in lower case: no letter can be mistaken for a digit. */
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** Random bytes for 256 IDs, because requesting 16 bytes costs as much as requesting a thousand. */
const pool = Buffer.alloc(4096);
let used = pool.length;

/**
 * Creates an ID: prefix, underscore, 26 characters. The first ten characters are the time in
 * milliseconds, so that new rows are adjacent in an index and lists can be ordered by ID. The other
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

/** Returns the lower bound of IDs created in the last `days` days. Rows with smaller IDs have expired. */
export async function idCutoff(sql: Sql, kind: IdKind, days: number): Promise<string> {
  // Use the database's clock, because a worker's clock may be wrong by days.
  const [row] = await sql<{ at: Date }[]>`select now() - make_interval(days => ${days}::int) as at`;
  return firstId(kind, exactlyOne(row).at.getTime());
}

/** Returns the start of the IDs created at a time: earlier IDs are less than it, all others greater. */
export function firstId(kind: IdKind, timeMs: number): string {
  let time = timeMs;
  let text = '';
  for (let i = 0; i < 10; i += 1) {
    text = alphabet.charAt(time % 32) + text;
    time = Math.floor(time / 32);
  }
  return `${prefixes[kind]}_${text}`;
}
