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

/** Each unknown key costs a query, and a valid checksum is easy to produce. */
const wrongKeys = { perSecond: 20, burst: 100 };

/** Keys and addresses that are remembered, some 100 bytes each; a full set is cleared. */
const remembered = 20_000;

const detail = `The API key is not valid: send Authorization: ${expected}.`;
const invalid = refuse('api_key_invalid', { param: 'Authorization', expected, detail });
const tooManyKeys = refuse('rate_limited', {
  param: 'Authorization',
  expected: `at most ${wrongKeys.perSecond} wrong keys a second from one address`,
});

/**
 * Finds who holds the request's API key (RFC 6750), or why the request is refused. The key's row
 * is read for each request, so a new key works at once and a revocation holds from the next
 * request. An address that has sent too many wrong keys waits, but not for keys that were valid before:
 * their holders may share the address.
 */
export function createAuthenticator(sql: Sql) {
  const letIn = new Set<string>();
  /** Keys that are looked for by the quota. Who sends the same one meanwhile waits for that. */
  const looks = new Map<string, Promise<KeyHolder | Refusal>>();
  /** The quota of wrong keys by network: see `takeRequest`. */
  const wrong = new Map<string, number>();

  /**
   * Who sends the same key while it is read waits, and then all who wait share one look: a key
   * takes one of the connections, however many requests it sends, and the look is never older
   * than the request.
   */
  const reading = createKeyedLimit(1);
  const awaited = new Map<string, Promise<KeyHolder | Refusal>>();

  function read(name: string, hash: Buffer): Promise<KeyHolder | Refusal> {
    const next =
      awaited.get(name) ??
      reading(name, () => {
        awaited.delete(name);
        return readRow(name, hash);
      });
    awaited.set(name, next);
    return next;
  }

  async function readRow(name: string, hash: Buffer): Promise<KeyHolder | Refusal> {
    const holder = await findKeyHolder(sql, hash);
    if (letIn.size >= remembered) letIn.clear();
    if (holder?.isExpired === false) letIn.add(name);
    else letIn.delete(name);
    return holder ?? invalid;
  }

  function take(network: string, keys: number): boolean {
    const taken = takeRequest(wrongKeys, wrong.get(network) ?? 0, performance.now(), keys);
    if (wrong.size >= remembered) wrong.clear();
    wrong.set(network, taken.fullAt);
    return taken.isAllowed;
  }

  /** Counts a key as wrong before it is looked for: thousands may be sent until that is done. */
  async function look(name: string, hash: Buffer, network: string) {
    if (!take(network, 1)) return tooManyKeys;
    const found = await read(name, hash);
    if (letIn.has(name)) take(network, -1);
    return found;
  }

  async function find(hash: Buffer, address: string): Promise<KeyHolder | Refusal> {
    const name = hash.toString('latin1');
    const others = looks.get(name);
    const found = others && (await others);
    if (letIn.has(name)) return read(name, hash);
    if (found !== undefined) return found;
    const own = look(name, hash, networkOf(address)).finally(() => looks.delete(name));
    looks.set(name, own);
    return own;
  }

  return async (header: string, address: string): Promise<KeyHolder | Refusal> => {
    const isMissing = /^(Bearer *)?$/i.test(header);
    if (isMissing) return refuse('api_key_missing', { param: 'Authorization', expected });
    const key = /^Bearer +(\S+)$/i.exec(header)?.[1] ?? '';
    // Malformed, unknown and revoked look the same from outside.
    const holder = isWellFormedKey(key) ? await find(hashOfKey(key), address) : invalid;
    if (isRefusal(holder)) return holder;
    if (holder.isExpired) {
      // Only the holder of the key learns this.
      return { ...invalid, hint: `The key expired at ${holder.expiresAt?.toISOString()}.` };
    }
    return holder;
  };
}

/** Who sends a request that was let in. */
export function holderOf(ctx: Koa.Context): KeyHolder {
  const holder: KeyHolder | undefined = ctx.state['holder'];
  if (holder === undefined) throw new Error(`No key holder was identified for ${ctx.path}.`);
  return holder;
}

/** Refuses a key that has none of the scopes that reach something, of which the first is named. */
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
