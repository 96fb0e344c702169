import type Koa from 'koa';
import { findKeyHolder, type KeyHolder, noteUse } from '../db/apiKeys.js';
import type { Sql } from '../db/client.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import { hashOfKey, isWellFormedKey } from './apiKey.js';

const expected = 'Authorization: Bearer <API_KEY> with an active key of the account';

/**
 * Who holds the request's API key (RFC 6750), or why nobody is let in. The key's row is read
 * for each request, so a revocation holds from the next one; it is written once a minute.
 */
export async function authenticate(sql: Sql, header: string): Promise<KeyHolder | Refusal> {
  if (header === '') return refuse('api_key_missing', { param: 'Authorization', expected });
  const key = /^Bearer +(\S+)$/i.exec(header)?.[1] ?? '';
  const holder = isWellFormedKey(key) ? await findKeyHolder(sql, hashOfKey(key)) : undefined;
  // Malformed, unknown and revoked look the same from outside.
  if (holder === undefined) return refuse('api_key_invalid', { param: 'Authorization', expected });
  if (holder.isExpired) {
    return refuse('api_key_invalid', {
      param: 'Authorization',
      expected,
      // Only who has the key itself learns this.
      detail: `The key expired at ${holder.expiresAt?.toISOString()}.`,
    });
  }
  if (!holder.isUseNoted) await noteUse(sql, holder.keyId);
  return holder;
}

/** Who sends a request that was let in. */
export function holderOf(ctx: Koa.Context): KeyHolder {
  const holder: KeyHolder | undefined = ctx.state['holder'];
  if (holder === undefined) throw new Error(`Nobody was identified for ${ctx.path}.`);
  return holder;
}
