import { createHash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Mode } from '../db/accounts.js';

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const bodyLength = 30;
const checksumLength = 6;

/** `cor_test_` or `cor_live_`, 30 random characters and a checksum that shows a typing error. */
export function createApiKey(mode: Mode): string {
  const body = Array.from({ length: bodyLength }, () => alphabet.charAt(randomInt(62))).join('');
  const start = `cor_${mode}_${body}`;
  return start + checksumOf(start);
}

/** Whether a text is shaped like a key and its checksum is right; no database is asked. */
export function isWellFormedKey(text: string): boolean {
  if (!/^cor_(test|live)_[0-9A-Za-z]{36}$/.test(text)) return false;
  return text.endsWith(checksumOf(text.slice(0, -checksumLength)));
}

/** What is stored of a key. Its 178 random bits need no slow hash. */
export function hashOfKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

function checksumOf(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let i = 0; i < checksumLength; i += 1) {
    digits = alphabet.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
