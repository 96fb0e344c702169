import { createHmac } from 'node:crypto';
import type { JsonObject } from '../contract/versions/index.js';
import { bulkTransaction, exactlyOne, hasSqlState, type Sql } from '../db/client.js';
import {
  bindKeys,
  deleteKey,
  type KeyBinding,
  type Retention,
  recordKeyRefusal,
} from '../db/idempotency.js';
import type { PayoutRow } from '../db/payouts.js';
import kept from '../db/retention.json' with { type: 'json' };
import { isRefusal, meaningOf, type Refusal, refuse, shortened } from '../domain/refusal.js';
import { type Decoded, type DecodedObject, flatten, isList } from './decoded.js';
import { type Answer, type ApiDeps, type ApiRequest, notFound, refused } from './route.js';
import { createPace } from './slices.js';

/** PostgreSQL's lock_not_available: the first request with this key is still running. */
const lockNotAvailable = '55P03';

/**
 * Reads the Idempotency-Key header: 1 to 255 visible ASCII characters, of which one pair of
 * quotes is stripped (the IETF draft sends a quoted string, most clients a bare one).
 */
export function readIdempotencyKey(header: string | undefined): string | undefined | Refusal {
  if (header === undefined) return undefined;
  const key = /^"(.*)"$/.exec(header)?.[1] ?? header;
  // An empty key is a caller's mistake: to take it for none would leave a retry unprotected.
  if (/^[\x21-\x7e]{1,255}$/.test(key)) return key;
  const details = { param: 'Idempotency-Key', expected: '1 to 255 visible ASCII characters' };
  return refuse('header_invalid', { ...details, received: shortened(header, 64) });
}

/**
 * A keyed digest of each parameter as it was sent. Keyed, so that an account number cannot
 * be guessed from it; of each, so that a mismatch can name the parameter.
 */
export async function fingerprintsOf(
  decoded: DecodedObject,
  secret: string,
): Promise<Readonly<Record<string, string>>> {
  const fingerprints: Record<string, string> = {};
  const pace = createPace();
  for (const [name, text] of fingerprinted(decoded)) {
    // 96 bits tell two values of one parameter apart as well as 256 do.
    fingerprints[name] = createHmac('sha256', secret).update(text).digest('base64url').slice(0, 16);
    await pace();
  }
  return fingerprints;
}

/** What is digested, under its name: each parameter, but the items of a list whole. */
function* fingerprinted(decoded: DecodedObject): Iterable<readonly [name: string, text: string]> {
  for (const root of Object.keys(decoded).sort()) {
    const value = decoded[root] ?? null;
    if (isList(value)) yield* fingerprintedItems(root, value);
    else yield* flatten({ [root]: value }).map((pair) => [pair[0], digestible(pair)] as const);
  }
}

function* fingerprintedItems(root: string, items: readonly Decoded[]) {
  for (const [index, item] of items.entries()) {
    const name = `${root}[${index}]`;
    const pairs = flatten({ [name]: item });
    // An item without a value is nothing, as in a form.
    if (pairs.length > 0) yield [name, pairs.map(digestible).join('')] as const;
  }
}

function digestible([name, value]: readonly [string, string]): string {
  return `${name}\0${value}\0`;
}

/** What a request's key stands for: its own object, or that of the first request with the key. */
export type Bound = {
  readonly objectId: string;
  readonly isReplay: boolean;
  /** With which the first request was answered for good; null otherwise. */
  readonly refusal: Refusal | null;
  /** Headers of every answer to the request. */
  readonly headers: Readonly<Record<string, string>>;
};

/**
 * The transaction that binds a request's keys, and writes so many rows. It may wait for other
 * requests with the same key, so an account has a share of the connections for it; one that waits
 * as long as for any lock is refused.
 */
function keyTransaction<T>(
  { database, writes }: ApiDeps,
  { account }: ApiRequest,
  rowCount: number,
  work: (sql: Sql) => Promise<T>,
): Promise<T | Refusal> {
  return writes(account.id, () => bulkTransaction(database, rowCount, work)).catch(
    (error: unknown) => {
      if (!hasSqlState(error, lockNotAvailable)) throw error;
      return refuse('request_in_progress', { hint: 'Send it again in a second.' });
    },
  );
}

/** Binds the request's key to an object; refuses a key that was used for another request. */
export async function bindRequest(
  sql: Sql,
  deps: ApiDeps,
  request: ApiRequest,
  binds: { readonly objectId: string; readonly retention?: Retention },
): Promise<Bound | Refusal> {
  const { objectId, retention = kept.idempotency_keys.days } = binds;
  const { account, idempotencyKey, route, decoded } = request;
  const fresh = { objectId, isReplay: false, refusal: null, headers: {} };
  if (idempotencyKey === undefined) return fresh;
  const fingerprints = await fingerprintsOf(decoded, deps.fingerprintSecret);
  const binding = { key: idempotencyKey, route, fingerprints, objectId, refusal: null };
  const [first] = await bindKeys(sql, account.id, [binding], retention);
  if (first === undefined) return fresh;
  return (
    differenceOf(first, binding) ?? {
      objectId: first.objectId,
      isReplay: true,
      refusal: first.refusal,
      headers: { 'Idempotent-Replayed': 'true' },
    }
  );
}

/**
 * Writes what is asked, in so many rows, once for the request's key, which is kept for ever; or keeps
 * why it is refused.
 */
export function recordOnce(
  deps: ApiDeps,
  request: ApiRequest,
  { objectId, rowCount }: { readonly objectId: string; readonly rowCount: number },
  insert: (sql: Sql) => Promise<Refusal | undefined>,
): Promise<Bound | Refusal> {
  return keyTransaction(deps, request, rowCount, async (sql) => {
    const bound = await bindRequest(sql, deps, request, { objectId, retention: null });
    if (isRefusal(bound) || bound.isReplay) return bound;
    const refusal = await insert(sql);
    if (refusal === undefined) return bound;
    const { account, idempotencyKey: key } = request;
    if (key === undefined) return refusal;
    await recordKeyRefusal(sql, account.id, key, withAdvice(refusal));
    return { ...bound, refusal: withAdvice(refusal) };
  });
}

/**
 * What is named of a beneficiary that differs. The details of its account are not: named one by
 * one they could be guessed one by one. That all of them are right the replay shows in any case,
 * to who has a key of the same account.
 */
const openFields: readonly string[] = ['type', 'name', 'country', 'currency'];
const storing = 'POST /v1/beneficiaries';

/** How a request differs from the first one with its key; undefined when it does not. */
export function differenceOf(
  first: KeyBinding,
  now: Pick<KeyBinding, 'route' | 'fingerprints'>,
): Refusal | undefined {
  if (first.route !== now.route) {
    return refuse('idempotency_key_reused', {
      expected: `the request that the key was first used for: ${first.route}`,
      received: now.route,
      hint: `The key ${useOf(first)}. Use a new key for a new request.`,
    });
  }
  const names = new Set([...Object.keys(now.fingerprints), ...Object.keys(first.fingerprints)]);
  const different = [...names].filter(
    (name) => now.fingerprints[name] !== first.fingerprints[name],
  );
  if (different.length === 0) return undefined;
  const isOpen = (name: string) => !first.route.startsWith(storing) || openFields.includes(name);
  const shown = different.slice(0, 20).map((name) => (isOpen(name) ? name : 'account details'));
  return refuse('idempotency_key_reused', {
    // The key is one error, whatever differs: of several names none is its parameter.
    param: different.length === 1 ? different.find(isOpen) : undefined,
    expected: 'the same parameters as in the first request with this key',
    detail: `This idempotency key ${useOf(first)}, with other parameters; these differ: ${[...new Set(shown)].join(', ')}. Use a new key for a new request.`,
  });
}

/** What became of a key's first request: what was refused created nothing. */
function useOf({ refusal, objectId, route }: KeyBinding): string {
  if (refusal !== null) return 'belongs to a request that was refused';
  return `${route.includes(objectId) ? 'was used for' : 'created'} ${objectId}`;
}

/**
 * A refusal that is kept is answered again, so after its cause is repaired a new key is needed; and
 * a payout that repeats another one is the one to be repeated then.
 */
export function withAdvice(refusal: Refusal, payout?: Pick<PayoutRow, 'id' | 'retryOf'>): Refusal {
  const of = payout?.retryOf ? `, and retry_of ${payout.id}` : '';
  const advice = `To try again, send the request with a new idempotency key${of}.`;
  const { hint } = refusal;
  return { ...refusal, hint: hint === undefined ? advice : `${hint} ${advice}` };
}

/** How a route without workflows makes its object, and finds it again for a replay. */
type Creation<Row> = {
  readonly objectId: string;
  readonly status: 200 | 201;
  /** Runs in the transaction that binds the key. */
  readonly perform: (sql: Sql) => Promise<Row | Refusal>;
  /** Whether its only write is one statement: without a key it needs no transaction then. */
  readonly isOneWrite?: true;
  readonly find: (sql: Sql, accountId: string, objectId: string) => Promise<Row | undefined>;
  readonly render: (row: Row) => JsonObject;
};

/**
 * Runs a creation once for its key. A repeat answers with the object as it is now, or with
 * the same refusal; a concurrent repeat waits for the first, at most the lock time-out.
 */
export async function runIdempotently<Row extends object>(
  deps: ApiDeps,
  request: ApiRequest,
  { objectId: fresh, status, render, ...creation }: Creation<Row>,
): Promise<Answer> {
  const { account, idempotencyKey: key } = request;
  if (key === undefined && creation.isOneWrite === true) {
    const result = await deps.writes(account.id, () => creation.perform(deps.database));
    return isRefusal(result) ? refused(result) : { status, body: render(result) };
  }
  const answer = await keyTransaction(deps, request, 1, async (sql) => {
    const bound = await bindRequest(sql, deps, request, { objectId: fresh });
    if (isRefusal(bound)) return refused(bound);
    const { isReplay, objectId, headers } = bound;
    if (bound.refusal !== null) return { ...refused(withAdvice(bound.refusal)), headers };
    if (isReplay) {
      const row = await creation.find(sql, account.id, objectId);
      return { status, body: render(exactlyOne(row)), headers };
    }
    const result = await creation.perform(sql);
    if (!isRefusal(result)) return { status, body: render(result) };
    if (key === undefined) return refused(result);
    // What is the service's own fault does not use the key up, nor does an object that does not exist.
    const { status: refusedWith } = meaningOf(result.code);
    if (refusedWith >= 500 || refusedWith === 404) {
      await deleteKey(sql, account.id, key);
      return refused(result);
    }
    await recordKeyRefusal(sql, account.id, key, result);
    return refused(withAdvice(result));
  });
  return isRefusal(answer) ? refused(answer) : answer;
}

/** Changes or deletes the object that the path names, once for the request's key. */
export function changeOnce<Row extends object>(
  deps: ApiDeps,
  request: ApiRequest,
  change: Creation<Row>['find'],
  object: Pick<Creation<Row>, 'find' | 'render'>,
): Promise<Answer> {
  const { account, id } = request;
  const perform = async (sql: Sql) => (await change(sql, account.id, id)) ?? notFound(request);
  return runIdempotently(deps, request, { ...object, objectId: id, status: 200, perform });
}
