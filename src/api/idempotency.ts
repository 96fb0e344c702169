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
 * Reads the Idempotency-Key header: 1 to 255 visible ASCII characters. One pair of quotes is stripped,
 * because the IETF draft sends a quoted string and most clients a bare one.
 */
export function readIdempotencyKey(header: string | undefined): string | undefined | Refusal {
  if (header === undefined) return undefined;
  const key = /^"(.*)"$/.exec(header)?.[1] ?? header;
  // An empty key is a caller's mistake: treating it as no key would leave a retry unprotected.
  if (/^[\x21-\x7e]{1,255}$/.test(key)) return key;
  const details = { param: 'Idempotency-Key', expected: '1 to 255 visible ASCII characters' };
  return refuse('header_invalid', { ...details, received: shortened(header, 64) });
}

/**
 * Computes a keyed digest of each parameter as it was sent. It is keyed so that an account number cannot be
 * guessed from it. There is one per parameter so that a mismatch can name the parameter.
 */
export async function fingerprintsOf(
  decoded: DecodedObject,
  secret: string,
): Promise<Readonly<Record<string, string>>> {
  const fingerprints: Record<string, string> = {};
  const pace = createPace();
  for (const [name, text] of fingerprinted(decoded)) {
    // 96 bits distinguish two values of one parameter as well as 256 do.
    fingerprints[name] = createHmac('sha256', secret).update(text).digest('base64url').slice(0, 16);
    await pace();
  }
  return fingerprints;
}

/** Yields the texts to digest, by name: one for each parameter, but only one for each item of a list. */
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
    // An item without values counts as not sent, as in a form.
    if (pairs.length > 0) yield [name, pairs.map(digestible).join('')] as const;
  }
}

function digestible([name, value]: readonly [string, string]): string {
  return `${name}\0${value}\0`;
}

/**
 * The object that a request's key is bound to: its own, or that of the first request with the key. `refusal` is
 * the final refusal of the first request, or null if there was none.
 */
export type Bound = Pick<KeyBinding, 'objectId' | 'refusal'> & {
  readonly isReplay: boolean;
  /** Headers of every response to the request. */
  readonly headers: Readonly<Record<string, string>>;
};

/**
 * Runs the transaction that binds a request's keys and writes `rowCount` rows. It may wait for other requests
 * with the same key, so each account gets only a share of the connections for it. A request that waits until
 * the lock timeout is refused.
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
      return refuse('request_in_progress', { hint: 'Send the request again in a second.' });
    },
  );
}

/** Binds the request's key to an object. Refuses a key that was used for a different request. */
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
  const { objectId: earlier, refusal } = first;
  const headers = { 'Idempotent-Replayed': 'true' };
  return differenceOf(first, binding) ?? { objectId: earlier, refusal, isReplay: true, headers };
}

/**
 * Writes `rowCount` rows once per key, which is kept forever. If the request is refused, keeps the refusal.
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
 * Fields of a beneficiary that a mismatch may name. Account details are not among them: named one by one,
 * they could be guessed one by one. A replay does show whether all of them are right, but only to holders of
 * a key of the same account.
 */
const openFields: readonly string[] = ['type', 'name', 'country', 'currency'];

/** Returns how a request differs from the first one with its key, or undefined if it does not. */
export function differenceOf(
  first: KeyBinding,
  now: Pick<KeyBinding, 'route' | 'fingerprints'>,
): Refusal | undefined {
  if (first.route !== now.route) {
    return refuse('idempotency_key_reused', {
      expected: `the request that the key was first used for: ${first.route}`,
      received: now.route,
      hint: `The key ${pastUseOf(first)}. ${adviceAfter(first)}`,
      made: madeBy(first),
    });
  }
  const names = new Set([...Object.keys(now.fingerprints), ...Object.keys(first.fingerprints)]);
  const different = [...names].filter(
    (name) => now.fingerprints[name] !== first.fingerprints[name],
  );
  if (different.length === 0) return undefined;
  const isStoring = first.route.includes(' /v1/beneficiaries');
  const isOpen = (name: string) => !isStoring || openFields.includes(name);
  const shown = different.slice(0, 20).map((name) => (isOpen(name) ? name : 'account details'));
  return refuse('idempotency_key_reused', {
    // The reused key is one error, however many parameters differ. It names a `param` only if just one does.
    param: different.length === 1 ? different.find(isOpen) : undefined,
    expected: 'the same parameters as in the first request with this key',
    detail: `This idempotency key ${pastUseOf(first)}, with other parameters; these differ: ${[...new Set(shown)].join(', ')}. ${adviceAfter(first)}`,
    made: madeBy(first),
  });
}

/** A new key for the same invoice would pay it a second time. */
const adviceAfter = (first: KeyBinding) =>
  madeBy(first) === undefined
    ? 'Use a new key for a new request.'
    : 'Retrieve it before you use a new key, so that you do not pay twice.';

/** Returns the payout or batch that a key's first request created. */
function madeBy({ refusal, objectId, route }: KeyBinding): Refusal['made'] {
  if (refusal !== null) return undefined;
  if (route === 'POST /v1/payouts') return { payout: objectId };
  return route === 'POST /v1/batches' ? { batch: objectId } : undefined;
}

/** Describes what became of a key's first request. A refused request created nothing. */
function pastUseOf({ refusal, objectId, route }: KeyBinding): string {
  if (refusal !== null) return 'belongs to a request that was refused';
  return `${route.includes(objectId) ? 'was used for' : 'created'} ${objectId}`;
}

/**
 * Adds how to try again. A stored refusal is returned for every repeat, so a new key is needed once its cause
 * is fixed. If the payout was itself a retry, the next retry must name that payout.
 */
export function withAdvice(refusal: Refusal, payout?: Pick<PayoutRow, 'id' | 'retryOf'>): Refusal {
  const of = payout?.retryOf ? `, and retry_of ${payout.id}` : '';
  const advice = `To try again, send the request with a new idempotency key${of}.`;
  const { hint } = refusal;
  return { ...refusal, hint: hint === undefined ? advice : `${hint} ${advice}` };
}

/** How a route without workflows creates its object, and finds it again for a replay. */
type Creation<Row> = {
  readonly objectId: string;
  readonly status: 200 | 201;
  /** Runs in the transaction that binds the key. */
  readonly perform: (sql: Sql) => Promise<Row | Refusal>;
  /** Whether its only write is one statement, which needs no transaction if there is no key. */
  readonly isOneWrite?: true;
  readonly find: (sql: Sql, accountId: string, objectId: string) => Promise<Row | undefined>;
  readonly render: (row: Row) => JsonObject;
};

/**
 * Runs a creation once per key. A repeat returns the object as it is now, or the same refusal. A concurrent
 * repeat waits for the first request, at most for the lock timeout.
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
    // A failure of the service itself does not use up the key, nor does a malformed request, nor one for an
    // object that does not exist.
    const { status: refusedWith } = meaningOf(result.code);
    if (refusedWith >= 500 || refusedWith === 400 || refusedWith === 404) {
      await deleteKey(sql, account.id, key);
      return refused(result);
    }
    await recordKeyRefusal(sql, account.id, key, result);
    return refused(withAdvice(result));
  });
  return isRefusal(answer) ? refused(answer) : answer;
}

/** Changes or deletes the object that the path names, once per key. */
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
