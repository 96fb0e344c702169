import refusals from './refusal.json' with { type: 'json' };

/**
 * All refusals of the service by their stable code, with HTTP status and title. A code gets its meaning
 * only in refusal.json; api/pages/errors.md explains it. The API renders refusals as RFC 9457 problem details, and a failed payout stores
 * its refusal. Bugs are not in the table: they throw.
 *
 * With 400 nothing is stored and no idempotency key is bound. 401 to 417 concern authentication,
 * permissions, routes, conflicts and the form of the request. With 422 the request is understood but
 * refused: the refusal of a payout is stored and binds its idempotency key. 429 to 503 are limits and
 * failures of the service; all but 431 may succeed later.
 */
export type RefusalCode = keyof typeof refusals;

/** All codes in the order of the table. */
export const refusalCodes: readonly RefusalCode[] = Object.keys(refusals).filter(isRefusalCode);

export function isRefusalCode(text: string): text is RefusalCode {
  return Object.hasOwn(refusals, text);
}

/**
 * One refusal. `param` is in the caller's notation (`payouts[17][amount]`), `expected` completes the phrase
 * "must be", and `received` is the value sent, shortened and never a secret.
 */
export type Refusal = {
  readonly refused: true;
  readonly code: RefusalCode;
  readonly param?: string | undefined;
  readonly expected?: string | undefined;
  readonly received?: string | undefined;
  /** Whether `received` is not a string, so that it is shown without quotes: null, 5, a list. */
  readonly isBare?: boolean | undefined;
  /** A sentence that replaces the one built from the other properties. */
  readonly detail?: string | undefined;
  /** The name or value that was probably meant. */
  readonly meant?: string | undefined;
  /** A sentence appended after the others. */
  readonly hint?: string | undefined;
  /** The line of a CSV or NDJSON body, from 1. */
  readonly line?: number | undefined;
  /** What the idempotency key has already created, so that nobody pays it again with a new key. */
  readonly made?: { readonly payout: string } | { readonly batch: string } | undefined;
};

/** Builds a refusal from its code and the known details. */
export function refuse(
  code: RefusalCode,
  details: Omit<Refusal, 'refused' | 'code'> = {},
): Refusal {
  // Shortening may have split a surrogate pair, and JSON with half a pair cannot be stored.
  const received = details.received?.toWellFormed();
  const detail = details.detail?.toWellFormed();
  return { refused: true, code, ...details, received, detail };
}

/** Shortens a long text to its start and marks the cut with an ellipsis. */
export const shortened = (text: string, most: number) =>
  text.length > most ? `${text.slice(0, most)}…` : text;

/** Explains why a + arrived as a space. */
export const plusHint = 'In a form, + is a space: send %2B.';

/** Whether a function's result is a refusal instead of its value. */
export function isRefusal<T extends object>(value: T | Refusal): value is Refusal {
  return 'refused' in value && value.refused === true;
}

/** Whether a refusal reveals balances or volumes of an account, which only some callers may read. */
export const revealsFunds = (code: RefusalCode) =>
  code === 'insufficient_funds' || code === 'limit_exceeded';

/** Returns a refusal as sentences that say what to change. */
export function sentenceOf(refusal: Omit<Refusal, 'refused'>): string {
  const { line, detail = describe(refusal), meant, hint } = refusal;
  const fault = line === undefined ? detail : `Line ${line}: ${detail}`;
  const question = meant && `Did you mean ${meant}?`;
  return [fault, question, hint].filter((sentence) => sentence !== undefined).join(' ');
}

function describe({ code, param, expected, received, isBare, meant }: Omit<Refusal, 'refused'>) {
  if (!param || expected === undefined) {
    const wanted = expected === undefined ? '' : `: expected ${expected}`;
    return `${meaningOf(code).title}${wanted}${received ? `, received ${received}` : ''}.`;
  }
  if (code === 'parameter_missing' || code === 'api_key_missing')
    return `${param} is missing: send ${expected}.`;
  if (code === 'parameter_unknown') {
    const taken = meant === undefined ? `, which accepts ${expected}` : '';
    return `${param} is not a parameter of this request${taken}.`;
  }
  if (received === '') return `${param} must be ${expected}, but it is empty.`;
  if (received === undefined) return `${param} must be ${expected}.`;
  // The received text is quoted, so that it cannot be mistaken for a part of the sentence.
  return `${param} must be ${expected}, not ${isBare ? received : JSON.stringify(received)}.`;
}

/** Returns the HTTP status (RFC 9110) and the title (RFC 9457) of a code. */
export function meaningOf(code: RefusalCode): { readonly status: number; readonly title: string } {
  return refusals[code];
}
