import type { KeyObject } from 'node:crypto';
import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { z } from 'zod';
import { DecodedNumber } from '../contract/params.js';
import type { ObjectName } from '../contract/schemas.js';
import type { ApiVersion, JsonObject } from '../contract/versions/index.js';
import type { Account } from '../db/accounts.js';
import type { Database } from '../db/client.js';
import type { Keyring } from '../db/personalData.js';
import type { RateAges } from '../db/rates.js';
import { secretFields } from '../domain/fieldRule.js';
import { isCurrency, minorUnitsExpected, minorUnitsHint } from '../domain/money.js';
import { type Refusal, type RefusalCode, refuse } from '../domain/refusal.js';
import type { Scope } from '../domain/scope.js';
import type { KeyedLimit } from '../keyedLimit.js';
import type { CallbackReaders } from '../rails/registry.js';
import type { UrlPolicy } from '../webhooks/guard.js';
import type { TrustedProxies } from './clientAddress.js';
import { type Decoded, type DecodedObject, maxProblems, paramName } from './decoded.js';
import type { FeedWaits } from './feedWaits.js';
import { nearestName } from './nearestName.js';
import { memberOf, whenSent } from './paramSchema.js';
import type { Limiter } from './rateLimit.js';

/** What the routes work with. */
export type ApiDeps = {
  readonly database: Database;
  /** The same database, by connections of their own whose statements are soon given up. */
  readonly lists: Database;
  readonly temporal: Client;
  readonly rails: CallbackReaders;
  readonly log: Logger;
  readonly rateMaximumAgeMs: RateAges;
  readonly webhookPolicy: UrlPolicy;
  /** The service's own keys that sign webhooks; their public halves are published. */
  readonly webhookKeys: readonly KeyObject[];
  readonly fingerprintSecret: string;
  /** Seals and opens the details of beneficiaries. */
  readonly keyring: Keyring;
  readonly limiter: Limiter;
  readonly proxies: TrustedProxies;
  readonly feedWaits: FeedWaits;
  /** What an account's requests hold of the database's connections at a time. */
  readonly writes: KeyedLimit;
};

/** A request that was authenticated and decoded. */
export type ApiRequest = {
  readonly account: Account;
  /** What its key may do. */
  readonly scopes: readonly Scope[];
  readonly version: ApiVersion;
  /** The method and path as sent: what an idempotency key is bound to. */
  readonly route: string;
  /** The id in the path, where the route has one. */
  readonly id: string;
  /** The body's parameters, or the query's of a GET. */
  readonly decoded: DecodedObject;
  readonly idempotencyKey: string | undefined;
  /**
   * Names the object once it is known to be there, for the answer to a failure. An id that may
   * never be is not named: who looks for it in vain would conclude that nothing was sent.
   */
  readonly name: (object: NonNullable<Refused['object']>) => void;
  /** Counts items of work that only now are known; the refusal if so many are not left. */
  readonly takeItems: (items: number) => Refusal | undefined;
  /** How long the caller would wait for a final state; 0 is not at all. */
  readonly waitMs: number;
};

export type Success = {
  readonly status: 200 | 201 | 202;
  readonly body: JsonObject;
  readonly headers?: Readonly<Record<string, string>>;
};

/** Refused, after the request was understood; `headers` mark a replay. */
export type Refused = {
  readonly refusals: readonly Refusal[];
  readonly headers?: Readonly<Record<string, string>>;
  /** The payout or batch that the refusal is about, or that records it. */
  readonly object?: { readonly payout: string } | { readonly batch: string };
};

export type Answer = (Success | Refused) & {
  /** How long the account's place stays empty after expensive work, so that others have their turn. */
  readonly restMs?: number;
};

/** One entry of the route table: what serves a request, and what /openapi.json says of it. */
export type Route = {
  readonly method: 'get' | 'post' | 'delete';
  readonly path: string;
  /** The narrowest scope of a key that reaches it; `read` or `write` does as well. */
  readonly scope: Scope;
  /** Takes its list as NDJSON or CSV too, and then the other parameters in the query. */
  readonly acceptsLineFormats?: true;
  /** The least items that it takes before its work; without it a list is one, all else none. */
  readonly weight?: number;
  readonly handle: (deps: ApiDeps, request: ApiRequest) => Promise<Answer>;
  /** What a generated client calls the operation. */
  readonly operationId: string;
  /** One sentence. */
  readonly summary: string;
  /** The parameters of the body, or of a GET's query; without it any is refused as unknown. */
  readonly params?: z.ZodObject;
  /** Bodies to send, by what they show. A test sends each of them. */
  readonly examples?: Readonly<Record<string, JsonObject>>;
  /** The statuses of a success, each with its body. */
  readonly answers: { readonly [status in Success['status']]?: ObjectName };
  /** The refusals of its own; those of every route of its kind are added to them. */
  readonly refusals?: readonly RefusalCode[];
  /** Whether it can wait for a final state or an event (`Prefer: wait=N`). */
  readonly supportsPreferWait?: true;
  /** Of a feed: the number after which it is read, and may wait for more. */
  readonly feedPosition?: (decoded: DecodedObject) => bigint | undefined;
};

/** An entry whose handler is given the parameters, as the schema types them. */
export type RouteWithParams<Params> = Omit<Route, 'params' | 'handle'> & {
  readonly params: z.ZodObject & z.ZodType<Params>;
  /** Reads them where more than the schema has a say in what is refused, and in which order. */
  readonly read?: (request: ApiRequest) => Validated<Params> | Promise<Validated<Params>>;
  readonly handle: (deps: ApiDeps, request: ApiRequest, params: Params) => Promise<Answer>;
};

/** Has a route read its own parameters: what is published of them is what its handler is given. */
export function route<Params>({
  params,
  read = ({ decoded }) => validate(params, decoded),
  handle,
  ...entry
}: RouteWithParams<Params>): Route {
  return {
    ...entry,
    params,
    handle: async (deps, request) => {
      const validated = await read(request);
      return 'refusals' in validated ? validated : handle(deps, request, validated.params);
    },
  };
}

/** The scopes of which a key needs one: the route's own, or the broad one of its kind. */
export function scopesReaching({ method, scope }: Route): readonly Scope[] {
  const broad = method === 'get' ? 'read' : 'write';
  return scope === broad ? [scope] : [scope, broad];
}

/** Whether a route makes payouts, or fixes a price for one. */
export const sendsMoney = ({ scope }: Pick<Route, 'scope'>) => scope === 'payouts:create';

/** Whether a route answers page by page, and so reads as much as its filters make it. */
export function isList({ method, params }: Pick<Route, 'method' | 'params'>): boolean {
  return method === 'get' && params !== undefined && 'limit' in params.shape;
}

/** No such object, or another account's, which a caller must not be able to tell apart. */
export function notFound(request: ApiRequest): Refusal {
  return refuse('not_found', {
    expected: 'the id of an object of this account',
    received: request.id,
    detail: `This account has no such object: ${request.id}.`,
  });
}

/** The object of the account that the path names, or that there is none. */
export function oneObject(request: ApiRequest, body: JsonObject | undefined): Answer {
  return body === undefined ? refused(notFound(request)) : { status: 200, body };
}

export function refused(...refusals: readonly Refusal[]): Refused {
  return { refusals };
}

/** What was sent is echoed, so that it can be found in a log, but never at full length. */
const receivedLength = 64;

/** Parameters whose value is not repeated: account numbers and secrets. */
const secretNames = new RegExp(`(^|\\[)(${[...secretFields, 'secret', 'key'].join('|')})\\]?$`);

export type Validated<T> = { readonly params: T } | { readonly refusals: readonly Refusal[] };

/**
 * Checks decoded parameters: the typed values, or every refusal in the caller's own notation.
 *
 * @param at where the decoded value stands in the request
 */
export function validate<T>(
  schema: z.ZodType<T>,
  decoded: Decoded,
  at: readonly PropertyKey[] = [],
): Validated<T> {
  const result = schema.safeParse(decoded);
  if (result.success) return { params: result.data };
  // Cut before the nearest names are looked for, which is the work that a caller could pile up.
  const issues = result.error.issues.slice(0, maxProblems);
  const refusals = issues.flatMap((issue) => refusalsOf(issue, decoded, schema, at));
  return { refusals: withoutConsequences(refusals).slice(0, maxProblems) };
}

function refusalsOf(
  issue: z.core.$ZodIssue,
  decoded: Decoded,
  schema: z.ZodType,
  at: readonly PropertyKey[],
): readonly Refusal[] {
  if (issue.code === 'unrecognized_keys') {
    const known = knownNames(schema, issue.path);
    const expected = known.length === 0 ? 'none' : known.join(', ');
    return issue.keys.slice(0, maxProblems).map((name) => {
      const param = paramName([...at, ...issue.path, name]);
      return refuse('parameter_unknown', { param, expected, meant: nearestName(name, known) });
    });
  }
  const param = paramName([...at, ...pathOf(issue, decoded)]);
  const sent = valueAt(decoded, issue.path);
  const expected = issue.message;
  if (sent === undefined) return [refuse('parameter_missing', { param, expected })];
  const meant = typeof sent === 'string' ? nearestName(sent, valuesOf(issue)) : undefined;
  const received = secretNames.test(param) ? undefined : receivedOf(sent);
  const isBareText = issue.code === 'invalid_type' && issue.expected === 'string';
  const isNumber = isBareText && sent instanceof DecodedNumber;
  const text = isNumber && received !== undefined ? `: "${sent.text}"` : '';
  const hint = isNumber ? `Send it as a string${text}.` : undefined;
  const better = issue.path.at(-1) === 'amount' ? amountDetails(decoded, issue.path) : { hint };
  return [refuse('parameter_invalid', { param, expected, received, meant, ...better })];
}

/** The only value of a list has no index of its own: `status=paid` is no `status[0]`. */
function pathOf({ code, path }: z.core.$ZodIssue, decoded: Decoded): readonly PropertyKey[] {
  const list = valueAt(decoded, path.slice(0, 1));
  const isOnly = code === 'invalid_value' && Array.isArray(list) && list.length === 1;
  return isOnly ? path.slice(0, 1) : path;
}

/** The values that would have been right, where they are few enough to be listed. */
function valuesOf(issue: z.core.$ZodIssue): readonly string[] {
  if (issue.code === 'invalid_value') return issue.values.map(String);
  const listed = z.object({ values: z.array(z.string()) });
  return (issue.code === 'custom' && listed.safeParse(issue.params).data?.values) || [];
}

/** The example in the currency of the request, and what to send in place of major units. */
function amountDetails(decoded: Decoded, path: readonly PropertyKey[]) {
  const beside = (name: string) => textAt(decoded, [...path.slice(0, -1), name]);
  const side = beside('fixed_side') === 'destination' ? 'destination_currency' : 'source_currency';
  const currency = beside(side) || beside('currency');
  if (!isCurrency(currency)) return {};
  const sent = textAt(decoded, path);
  const hint = minorUnitsHint(sent, currency);
  if (hint !== undefined) return { expected: 'a positive integer of minor units', hint };
  // An integer is too large: the schema says how large it may be.
  return /^[1-9]\d*$/.test(sent) ? {} : { expected: minorUnitsExpected(currency) };
}

function textAt(decoded: Decoded, path: readonly PropertyKey[]): string {
  const sent = valueAt(decoded, path);
  if (sent instanceof DecodedNumber) return sent.text;
  return typeof sent === 'string' ? sent : '';
}

/** One cause is one error: what is missing because its name was mistyped is not refused as well. */
export function withoutConsequences(refusals: readonly Refusal[]): readonly Refusal[] {
  const meant = new Set(
    refusals.flatMap(({ code, param = '', meant: name }) =>
      code === 'parameter_unknown' && name !== undefined ? [siblingOf(param, name)] : [],
    ),
  );
  return refusals.filter(
    ({ code, param = '' }) => !(code === 'parameter_missing' && meant.has(param)),
  );
}

function siblingOf(param: string, name: string): string {
  return param.endsWith(']') ? param.replace(/\[[^[]*\]$/, `[${name}]`) : name;
}

/** The names of the object at a path of the schema; none where it takes any name. */
function knownNames(schema: z.core.$ZodType, path: readonly PropertyKey[]): readonly string[] {
  const named = path.reduce(memberOf, whenSent(schema));
  return named instanceof z.ZodObject ? Object.keys(named.def.shape) : [];
}

function valueAt(decoded: Decoded, path: readonly PropertyKey[]): unknown {
  let value: unknown = decoded;
  for (const name of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, name)?.value;
  }
  return value;
}

function receivedOf(sent: unknown): string {
  const value = sent instanceof DecodedNumber ? sent.text : sent;
  if (typeof value !== 'object' || value === null) return String(value).slice(0, receivedLength);
  if (!Array.isArray(value)) return 'an object';
  return value.length === 0 ? 'an empty list' : `a list of ${value.length}`;
}
