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
import { plusHint, type Refusal, type RefusalCode, refuse, shortened } from '../domain/refusal.js';
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
  /** How long a caller waits for the decision before the answer is 202 `pending`. */
  readonly decisionLimitMs: number;
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
  const sent = valueAt(decoded, issue.path);
  const member = issue.path.reduce(memberOf, whenSent(schema));
  // To a schema a number is an object too, by whose name it must not be refused.
  if (issue.code === 'unrecognized_keys' && !(sent instanceof DecodedNumber)) {
    const known = member instanceof z.ZodObject ? Object.keys(member.def.shape) : [];
    const expected = known.join(', ') || 'none';
    return issue.keys.slice(0, maxProblems).map((name) => {
      const param = paramName([...at, ...issue.path, name]);
      return refuse('parameter_unknown', { param, expected, meant: nearestName(name, known) });
    });
  }
  const param = paramName([...at, ...pathOf(issue, decoded)]);
  const expected = issue.message;
  const holder = valueAt(decoded, issue.path.slice(0, -1));
  if (sent === undefined && holder instanceof DecodedNumber) return [];
  if (sent === undefined) return [refuse('parameter_missing', { param, expected })];
  const meant = typeof sent === 'string' ? nearestName(sent, valuesOf(issue)) : undefined;
  const received = secretNames.test(param) ? undefined : receivedOf(sent);
  const isBare = typeof sent !== 'string';
  const better = amountDetails(decoded, issue.path, hintOf(sent, member));
  return [refuse('parameter_invalid', { param, expected, received, isBare, meant, ...better })];
}

/** How to write what was sent so that the schema takes it, or how long it is. */
function hintOf(sent: unknown, schema: z.core.$ZodType | undefined): string | undefined {
  const takes = (value: unknown) => schema !== undefined && z.safeParse(schema, value).success;
  if (typeof sent === 'string') {
    // The offset of a time: its + became a space.
    if (/ \d\d:\d\d$/.test(sent) && takes(sent.replace(' ', '+'))) return plusHint;
    return sent.length > receivedLength ? `It has ${sent.length} characters.` : undefined;
  }
  if (!(sent instanceof DecodedNumber)) return undefined;
  if (takes(sent.text)) return 'Send it as a string.';
  // As doubles are written, 125000.0 or 1.25E7; what has cents may be of major units.
  const whole = /\.0$|e/i.test(sent.text) ? `${Number(sent.text)}` : '';
  return takes(new DecodedNumber(whole)) ? `Send ${whole}, without a decimal point.` : undefined;
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
function amountDetails(decoded: Decoded, path: readonly PropertyKey[], usual: string | undefined) {
  const beside = (name: string) => textAt(decoded, [...path.slice(0, -1), name]);
  const side = beside('fixed_side') === 'destination' ? 'destination_currency' : 'source_currency';
  const currency = beside(side) || beside('currency');
  if (path.at(-1) !== 'amount' || !isCurrency(currency)) return { hint: usual };
  const sent = textAt(decoded, path);
  const hint = usual ?? minorUnitsHint(sent, currency);
  if (hint !== undefined) return { expected: 'a positive integer of minor units', hint };
  // An integer is too large: the schema says how large it may be.
  return /^[1-9]\d*$/.test(sent) ? {} : { expected: minorUnitsExpected(currency) };
}

function textAt(decoded: Decoded, path: readonly PropertyKey[]): string {
  const sent = valueAt(decoded, path);
  if (sent instanceof DecodedNumber) return sent.text;
  return typeof sent === 'string' ? sent : '';
}

/**
 * One cause is one error: what is missing because its name was mistyped is not refused as well, nor
 * is a value for breaking two rules that one sentence names.
 */
export function withoutConsequences(refusals: readonly Refusal[]): readonly Refusal[] {
  const meant = new Set(
    refusals.flatMap(({ code, param = '', meant: name }) =>
      code === 'parameter_unknown' && name !== undefined
        ? [param.replace(/[^[\]]+(?=\]?$)/, name)]
        : [],
    ),
  );
  const distinct = new Map(refusals.map((one) => [`${one.param} ${one.expected}`, one]));
  return [...distinct.values()].filter(
    ({ code, param = '' }) => !(code === 'parameter_missing' && meant.has(param)),
  );
}

function valueAt(decoded: Decoded, path: readonly PropertyKey[]): unknown {
  const inside = (value: unknown, name: PropertyKey) =>
    Object.getOwnPropertyDescriptor(Object(value), name)?.value;
  return path.reduce<unknown>(inside, decoded);
}

function receivedOf(sent: unknown): string {
  const value = sent instanceof DecodedNumber ? sent.text : sent;
  if (typeof value !== 'object' || value === null) return shortened(String(value), receivedLength);
  if (!Array.isArray(value)) return 'an object';
  return value.length === 0 ? 'an empty list' : `a list of ${value.length}`;
}
