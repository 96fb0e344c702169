/**
 * All refusals of the service by their stable code, with HTTP status and title. A code gets its meaning
 * only in this table. The API renders refusals as RFC 9457 problem details, and a failed payout stores
 * its refusal. Bugs are not in the table: they throw.
 */
const refusals = {
  // 400: the request cannot be read; nothing is stored, and no idempotency key is bound.
  parameter_missing: [400, 'A required parameter is missing'],
  parameter_invalid: [400, 'A parameter is malformed'],
  parameter_unknown: [400, 'A parameter is not supported by this route'],
  parameters_exclusive: [400, 'The parameters are mutually exclusive'],
  body_malformed: [400, 'The request body cannot be decoded'],
  request_malformed: [400, 'The request is not HTTP/1.1'],
  header_invalid: [400, 'A header is malformed'],
  api_version_unknown: [400, 'No such API version'],
  // 401–417: authentication, permissions, routes, conflicts and the form of the request.
  api_key_missing: [401, 'No API key was sent'],
  api_key_invalid: [401, 'The API key is not valid'],
  signature_invalid: [401, 'The signature is not valid'],
  address_not_allowed: [403, 'The API key is not allowed from this address'],
  scope_missing: [403, 'The API key lacks the required scope'],
  account_frozen: [403, 'The account is frozen'],
  account_closed: [403, 'The account is closed'],
  live_mode_unsupported: [403, 'This route serves test accounts only'],
  not_found: [404, 'No such object'],
  route_not_found: [404, 'No such route'],
  method_not_allowed: [405, 'The route does not support that method'],
  request_timeout: [408, 'The request took too long to arrive'],
  request_in_progress: [409, 'The first request with this key is still running'],
  batch_not_cancelable: [409, 'The batch is complete'],
  payout_not_cancelable: [409, 'The payout can no longer be canceled'],
  webhook_endpoint_unverified: [409, 'The webhook endpoint has not been verified'],
  webhook_endpoint_disabled: [409, 'The webhook endpoint is disabled'],
  secret_rotation_open: [409, 'The last rotation of the secret has not ended'],
  body_too_large: [413, 'The request body is too large'],
  content_type_unsupported: [415, 'The content type is not supported'],
  expectation_unsupported: [417, 'The expectation cannot be met'],
  // 422: understood but refused. The refusal of a payout is stored and binds its idempotency key.
  idempotency_key_reused: [422, 'The idempotency key belongs to another request'],
  currency_unsupported: [422, 'The currency is not supported'],
  amount_too_small: [422, 'The amount is too small'],
  amount_too_large: [422, 'The amount is too large'],
  corridor_unavailable: [422, 'No rail can send this payout'],
  list_too_broad: [422, 'The filters are not selective enough'],
  cursor_not_found: [422, 'The list has no such object to continue from'],
  retry_refused: [422, 'The payout cannot be retried'],
  quote_not_found: [422, 'No such quote'],
  quote_expired: [422, 'The quote has expired'],
  quote_used: [422, 'The quote has been used'],
  beneficiary_not_found: [422, 'No such beneficiary'],
  beneficiary_invalid: [422, 'The beneficiary details are not valid'],
  currency_mismatch: [422, 'The currency is not the one the beneficiary receives'],
  insufficient_funds: [422, 'The available balance is too low'],
  limit_exceeded: [422, 'A limit of the account would be exceeded'],
  webhook_url_refused: [422, 'Webhooks cannot be sent to that address'],
  webhook_challenge_failed: [422, 'The challenge was not answered'],
  limit_reached: [422, 'A limit of the account is reached'],
  batch_refused: [422, 'Another item of the batch was refused'],
  rate_expired: [422, 'The rates of the batch have expired'],
  // 429–503: limits, and failures of the service; all but 431 may succeed later.
  rate_limited: [429, 'Too many requests'],
  too_many_in_flight: [429, 'Too many requests at once'],
  headers_too_large: [431, 'The request headers are too large'],
  rate_unavailable: [503, 'No current rate for this corridor'],
  service_unavailable: [503, 'The service is temporarily unavailable'],
  internal_error: [500, 'An internal error occurred'],
} as const;

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
  const [status, title] = refusals[code];
  return { status, title };
}
