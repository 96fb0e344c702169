import { type Account, findAccountByKeyHash } from '../db/accounts.js';
import type { Sql } from '../db/client.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import { hashOfKey, isWellFormedKey } from './apiKey.js';

const expected = 'Authorization: Bearer <API_KEY> with an active key of the account';

/** The account of the request's API key (RFC 6750), or why there is none. */
export async function authenticate(sql: Sql, header: string): Promise<Account | Refusal> {
  if (header === '') return refuse('api_key_missing', { param: 'Authorization', expected });
  const key = /^Bearer +(\S+)$/i.exec(header)?.[1] ?? '';
  // Malformed, unknown and revoked look the same from outside.
  const invalid = refuse('api_key_invalid', { param: 'Authorization', expected });
  if (!isWellFormedKey(key)) return invalid;
  return (await findAccountByKeyHash(sql, hashOfKey(key))) ?? invalid;
}
