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
import type { DecisionWaits } from './decisionWaits.js';
import { type Decoded, type DecodedObject, maxProblems, paramName } from './decoded.js';
import type { FeedWaits } from './feedWaits.js';
import { nearestName } from './nearestName.js';
import { memberOf, whenSent } from './paramSchema.js';
import type { Limiter } from './rateLimit.js';

/** The dependencies of the routes. */
export type ApiDeps = {
  readonly database: Database;
  /** The same database, through separate connections with a short statement timeout. */
  readonly lists: Database;
  readonly temporal: Client;
  readonly rails: CallbackReaders;
  readonly log: Logger;
  readonly rateMaximumAgeMs: RateAges;
  /** How long a caller waits for the decision before the response is 202 `pending`. */
  readonly decisionLimitMs: number;
  readonly webhookPolicy: UrlPolicy;
  /** The service's keys that sign webhooks. Their public halves are published. */
  readonly webhookKeys: readonly KeyObject[];
  readonly fingerprintSecret: string;
  /** Encrypts and decrypts the details of beneficiaries. */
  readonly keyring: Keyring;
  readonly limiter: Limiter;
  readonly proxies: TrustedProxies;
  readonly feedWaits: FeedWaits;
  readonly decisionWaits: DecisionWaits;
  /** Limits how many database connections the requests of one account use at a time. */
  readonly writes: KeyedLimit;
};

/** A request that was authenticated and decoded. */
export type ApiRequest = {
  readonly account: Account;
  /** The scopes of the API key. */
  readonly scopes: readonly Scope[];
  readonly version: ApiVersion;
  /** The method and path as sent. An idempotency key is bound to them. */
  readonly route: string;
  /** The ID in the path, if the route has one. */
  readonly id: string;
  /** The parameters of the body, or of the query for a GET. */
  readonly decoded: DecodedObject;
  readonly idempotencyKey: string | undefined;
  /**
   * Names the object, once it is known to exist, in the response to a failure. An ID that may never exist is
   * not named: a caller who looked it up in vain would conclude that nothing was sent.
   */
  readonly name: (object: NonNullable<Refused['object']>) => void;
  /** Charges items of work that only now are known. Returns a refusal if the quota has fewer left. */
  readonly takeItems: (items: number) => Refusal | undefined;
  /** How long the caller is willing to wait for a final state; 0 means not at all. */
  readonly waitMs: number;
};

export type Success = {
  readonly status: 200 | 201 | 202;
  readonly body: JsonObject;
  readonly headers?: Readonly<Record<string, string>>;
};

/** A refusal of a request that was understood. `headers` mark a replay. */
export type Refused = {
  readonly refusals: readonly Refusal[];
  readonly headers?: Readonly<Record<string, string>>;
  /** The payout or batch that the refusal concerns, or that records it. */
  readonly object?: { readonly payout: string } | { readonly batch: string };
};

export type Answer = (Success | Refused) & {
  /** How long the account's slot stays empty after expensive work, so that others get their turn. */
  readonly restMs?: number;
};

/** One entry of the route table: serves a request, and is published in /openapi.json. */
export type Route = {
  readonly method: 'get' | 'post' | 'delete';
  readonly path: string;
  /** The narrowest scope that allows it. The broad scope `read` (for a GET) or `write` does as well. */
  readonly scope: Scope;
  /** Accepts its list as NDJSON or CSV too, with the other parameters in the query. */
  readonly acceptsLineFormats?: true;
  /** Returns a list that is not divided into pages and may be long. */
  readonly isLong?: true;
  readonly handle: (deps: ApiDeps, request: ApiRequest) => Promise<Answer>;
  /** The name of the operation in generated clients. */
  readonly operationId: string;
  /** One sentence. */
  readonly summary: string;
  /** The parameters of the body, or of a GET's query. Without it, every parameter is refused as unknown. */
  readonly params?: z.ZodObject;
  /** Example bodies, by what they show. A test sends each of them. */
  readonly examples?: Readonly<Record<string, JsonObject>>;
  /** The success statuses, each with the object in its body. */
  readonly answers: { readonly [status in Success['status']]?: ObjectName };
  /** The refusals specific to this route, in addition to those of all routes of its kind. */
  readonly refusals?: readonly RefusalCode[];
  /** Whether it can wait for a final state or an event (`Prefer: wait=N`). */
  readonly supportsPreferWait?: true;
  /** Only for a feed: returns the position to read after. A request may wait there for more events. */
  readonly feedPosition?: (decoded: DecodedObject) => bigint | undefined;
};

type Awaitable<T> = T | Promise<T>;

/** A route whose handler receives the parameters as typed by the schema. */
export type RouteWithParams<Params> = Omit<Route, 'params' | 'handle'> & {
  readonly params: z.ZodObject & z.ZodType<Params>;
  /** Validates the parameters where the schema alone does not decide what is refused, and in which order. */
  readonly read?: (request: ApiRequest, deps: ApiDeps) => Awaitable<Validated<Params>>;
  readonly handle: (deps: ApiDeps, request: ApiRequest, params: Params) => Promise<Answer>;
};

/** Builds a route that validates its own parameters: its handler receives exactly what is published. */
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
      const validated = await read(request, deps);
      return 'refusals' in validated ? validated : handle(deps, request, validated.params);
    },
  };
}

/** Returns the scopes of which a key needs one: the route's own, or the broad one of its kind. */
export function scopesReaching({ method, scope }: Route): readonly Scope[] {
  const broad = method === 'get' ? 'read' : 'write';
  return scope === broad ? [scope] : [scope, broad];
}

/** Whether a route creates payouts, or fixes a price for one. */
export const sendsMoney = ({ scope }: Pick<Route, 'scope'>) => scope === 'payouts:create';

/** Whether a route returns pages or a long list. Its cost depends on the filters that the caller sends. */
export function isList({ method, params, isLong }: Route): boolean {
  return method === 'get' && params !== undefined && (isLong === true || 'limit' in params.shape);
}

/** Refuses an ID that does not exist or is another account's. A caller must not be able to tell which. */
export function notFound(request: ApiRequest): Refusal {
  return refuse('not_found', {
    expected: 'the id of an object of this account',
    received: request.id,
    detail: `This account has no such object: ${request.id}.`,
  });
}

/** Returns the object of the account that the path names, or the refusal that there is none. */
export function oneObject(request: ApiRequest, body: JsonObject | undefined): Answer {
  return body === undefined ? refused(notFound(request)) : { status: 200, body };
}

export function refused(...refusals: readonly Refusal[]): Refused {
  return { refusals };
}

/** Maximum length of an echoed value: enough to find it in a log, but never the full length. */
const receivedLength = 64;

/** Parameters whose values are never echoed: account numbers and secrets. */
const secretNames = new RegExp(`(^|\\[)(${[...secretFields, 'secret', 'key'].join('|')})\\]?$`);

export type Validated<T> = { readonly params: T } | { readonly refusals: readonly Refusal[] };

/**
 * Validates decoded parameters. Returns the typed values, or every refusal in the caller's own notation.
 *
 * @param at path of the decoded value in the request
 */
export function validate<T>(
  schema: z.ZodType<T>,
  decoded: Decoded,
  at: readonly PropertyKey[] = [],
): Validated<T> {
  const result = schema.safeParse(decoded);
  if (result.success) return { params: result.data };
  // Truncated first: finding the nearest names is work that a caller could pile up.
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
  // To the schema a DecodedNumber is an object too, but the name inside it must not be refused.
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
  const values = issue.code === 'invalid_value' ? issue.values.map(String) : [];
  const meant = typeof sent === 'string' ? nearestName(sent, values) : undefined;
  const received = secretNames.test(param) ? undefined : receivedOf(sent);
  const isBare = typeof sent !== 'string';
  const details = amountDetails(decoded, issue.path, hintOf(sent, member));
  return [refuse('parameter_invalid', { param, expected, received, isBare, meant, ...details })];
}

/** Returns a hint how to write the value so that the schema accepts it, or how long it is. */
function hintOf(sent: unknown, schema: z.core.$ZodType | undefined): string | undefined {
  const takes = (value: unknown) => schema !== undefined && z.safeParse(schema, value).success;
  if (typeof sent === 'string') {
    // An unencoded + in the offset of a time was decoded as a space.
    if (/ \d\d:\d\d$/.test(sent) && takes(sent.replace(' ', '+'))) return plusHint;
    // Code points, as the schemas count: an emoji is one character, but two units of a JavaScript string.
    return sent.length > receivedLength
      ? `It has ${Array.from(sent).length} characters.`
      : undefined;
  }
  if (!(sent instanceof DecodedNumber)) return undefined;
  if (takes(sent.text)) return 'Send it as a string.';
  // Undoes how doubles are written: 125000.0 or 1.25E7. A number with cents may be in major units.
  const whole = /\.0$|e/i.test(sent.text) ? `${Number(sent.text)}` : '';
  return takes(new DecodedNumber(whole)) ? `Send ${whole}, without a decimal point.` : undefined;
}

/** Returns the path of an issue. The only value of a list has no index: `status=paid` is not `status[0]`. */
function pathOf({ code, path }: z.core.$ZodIssue, decoded: Decoded): readonly PropertyKey[] {
  const list = valueAt(decoded, path.slice(0, 1));
  const isOnly = code === 'invalid_value' && Array.isArray(list) && list.length === 1;
  return isOnly ? path.slice(0, 1) : path;
}

/** Returns the example in the currency of the request, and what to send in place of major units. */
function amountDetails(decoded: Decoded, path: readonly PropertyKey[], usual: string | undefined) {
  const sibling = (name: string) => textAt(decoded, [...path.slice(0, -1), name]);
  const side = sibling('fixed_side') === 'destination' ? 'destination_currency' : 'source_currency';
  const currency = sibling(side) || sibling('currency');
  if (path.at(-1) !== 'amount' || !isCurrency(currency)) return { hint: usual };
  const sent = textAt(decoded, path);
  const hint = usual ?? minorUnitsHint(sent, currency);
  if (hint !== undefined) return { expected: 'a positive integer of minor units', hint };
  // An integer can only be too large: the schema states the maximum.
  return /^[1-9]\d*$/.test(sent) ? {} : { expected: minorUnitsExpected(currency) };
}

function textAt(decoded: Decoded, path: readonly PropertyKey[]): string {
  const sent = valueAt(decoded, path);
  if (sent instanceof DecodedNumber) return sent.text;
  return typeof sent === 'string' ? sent : '';
}

/**
 * Removes errors that follow from another one, so that one cause is one error: a parameter that is missing
 * because its name was mistyped, and a value that breaks two rules with the same message.
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
