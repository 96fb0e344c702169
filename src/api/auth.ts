import type Koa from 'koa';
import { findKeyHolder, hashOfKey, isWellFormedKey, type KeyHolder } from '../db/apiKeys.js';
import type { Sql } from '../db/client.js';
import { isRefusal, type Refusal, refuse } from '../domain/refusal.js';
import type { Scope } from '../domain/scope.js';
import { createKeyedLimit } from '../keyedLimit.js';
import { networkOf } from './clientAddress.js';
import { takeRequest } from './rateLimit.js';
import type { Refused } from './route.js';

const expected = 'Bearer <API_KEY>, with an active key';

/** Quota of wrong keys per network: each unknown key costs a query, and a valid checksum is easy to make. */
const wrongKeys = { perSecond: 20, burst: 100 };

/** Maximum number of keys and of networks to remember, about 100 bytes each. A full set is cleared. */
const maxRemembered = 20_000;

const detail = `The API key is not valid: send Authorization: ${expected}.`;
const invalid = refuse('api_key_invalid', { param: 'Authorization', expected, detail });
const tooManyKeys = refuse('rate_limited', {
  param: 'Authorization',
  expected: `at most ${wrongKeys.perSecond} wrong keys a second from one address`,
});

/**
 * Creates a function that finds the holder of the request's API key (RFC 6750), or why the request is
 * refused. It reads the key's row for each request, so a new key works at once and a revocation applies from
 * the next request. A network that has sent too many wrong keys must wait, except for keys that were valid
 * before: their holders may share the network.
 */
export function createAuthenticator(sql: Sql) {
  const validKeys = new Set<string>();
  /** Lookups that count against the quota. Concurrent requests with the same key wait for the same lookup. */
  const lookups = new Map<string, Promise<KeyHolder | Refusal>>();
  /** Use of the quota of wrong keys, by network: see `takeRequest`. */
  const wrongKeyUses = new Map<string, number>();

  /**
   * Requests whose key is already being read wait, and then share one further read. So a key uses one
   * database connection however many requests it sends, and a request never gets a read that began before it.
   */
  const reading = createKeyedLimit(1);
  const nextReads = new Map<string, Promise<KeyHolder | Refusal>>();

  function read(name: string, hash: Buffer): Promise<KeyHolder | Refusal> {
    const next =
      nextReads.get(name) ??
      reading(name, async () => {
        nextReads.delete(name);
        const holder = await findKeyHolder(sql, hash);
        if (validKeys.size >= maxRemembered) validKeys.clear();
        if (holder?.isExpired === false) validKeys.add(name);
        else validKeys.delete(name);
        return holder ?? invalid;
      });
    nextReads.set(name, next);
    return next;
  }

  function takeFromQuota(network: string, keys: number): boolean {
    const taken = takeRequest(wrongKeys, wrongKeyUses.get(network) ?? 0, performance.now(), keys);
    if (wrongKeyUses.size >= maxRemembered) wrongKeyUses.clear();
    wrongKeyUses.set(network, taken.fullAt);
    return taken.isAllowed;
  }

  /**
   * Counts a key as wrong before looking it up, because thousands may arrive before the lookup is done. A
   * valid key is refunded.
   */
  async function countedLookup(name: string, hash: Buffer, network: string) {
    if (!takeFromQuota(network, 1)) return tooManyKeys;
    const found = await read(name, hash);
    if (validKeys.has(name)) takeFromQuota(network, -1);
    return found;
  }

  async function find(hash: Buffer, address: string): Promise<KeyHolder | Refusal> {
    const name = hash.toString('latin1');
    const concurrent = lookups.get(name);
    const found = concurrent && (await concurrent);
    if (validKeys.has(name)) return read(name, hash);
    if (found !== undefined) return found;
    const own = countedLookup(name, hash, networkOf(address)).finally(() => lookups.delete(name));
    lookups.set(name, own);
    return own;
  }

  return async (header: string, address: string): Promise<KeyHolder | Refusal> => {
    const isMissing = /^(Bearer *)?$/i.test(header);
    if (isMissing) return refuse('api_key_missing', { param: 'Authorization', expected });
    const key = /^Bearer +(\S+)$/i.exec(header)?.[1] ?? '';
    // Malformed, unknown and revoked keys get the same response.
    const holder = isWellFormedKey(key) ? await find(hashOfKey(key), address) : invalid;
    if (isRefusal(holder)) return holder;
    if (holder.isExpired) {
      // Only the holder of the key can learn this.
      return { ...invalid, hint: `The key expired at ${holder.expiresAt?.toISOString()}.` };
    }
    return holder;
  };
}

/** Returns the key holder of an authenticated request. */
export function holderOf(ctx: Koa.Context): KeyHolder {
  const holder: KeyHolder | undefined = ctx.state['holder'];
  if (holder === undefined) throw new Error(`No key holder was identified for ${ctx.path}.`);
  return holder;
}

/** Refuses a key that has none of the scopes that allow something. The challenge names the first of them. */
export function scopeMissing(scopes: readonly Scope[], reaching: readonly Scope[]): Refused {
  const refusal = refuse('scope_missing', {
    ...{ param: 'Authorization', isBare: true },
    expected: `an API key with the scope ${reaching.join(' or ')}`,
    received: `a key with the scope ${scopes.join(', ')}`,
  });
  // RFC 6750, 3.1.
  const challenge = `Bearer error="insufficient_scope", scope="${reaching[0]}"`;
  return { refusals: [refusal], headers: { 'WWW-Authenticate': challenge } };
}
