/**
 * Every expected "no" of the service: its stable code, its HTTP status and its
 * title. This table is the one place where a code gets a meaning; the API
 * renders it as RFC 9457 problem details, the ledger stores it on a failed
 * payout. Bugs are not in it: bugs throw.
 */
const refusals = {
  // 400: the request cannot be read; nothing is stored and no key is bound.
  parameter_missing: { status: 400, title: 'A required parameter is missing' },
  parameter_invalid: { status: 400, title: 'A parameter has the wrong form' },
  parameter_unknown: { status: 400, title: 'A parameter is not known here' },
  parameters_exclusive: { status: 400, title: 'Two parameters exclude each other' },
  body_malformed: { status: 400, title: 'The request body cannot be decoded' },
  request_malformed: { status: 400, title: 'The request is not HTTP/1.1' },
  header_invalid: { status: 400, title: 'A header has the wrong form' },
  api_version_unknown: { status: 400, title: 'No such API version' },
  // 401–415: who asks, where, and in what form.
  api_key_missing: { status: 401, title: 'No API key was sent' },
  api_key_invalid: { status: 401, title: 'The API key is not valid' },
  signature_invalid: { status: 401, title: 'The signature is not valid' },
  scope_missing: { status: 403, title: 'The API key may not do this' },
  live_mode_unsupported: { status: 403, title: 'This route serves test accounts only' },
  not_found: { status: 404, title: 'No such object' },
  route_not_found: { status: 404, title: 'No such route' },
  method_not_allowed: { status: 405, title: 'This route does not take that method' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  request_in_progress: {
    status: 409,
    title: 'The first request with this key is still running',
  },
  batch_not_cancelable: { status: 409, title: 'The batch is complete' },
  payout_not_cancelable: { status: 409, title: 'The payout can no longer be canceled' },
  body_too_large: { status: 413, title: 'The request body is too large' },
  content_type_unsupported: { status: 415, title: 'The content type is not supported' },
  expectation_unsupported: { status: 417, title: 'The expectation cannot be met' },
  // 422: understood and refused; on a payout it is stored and binds its key.
  idempotency_key_reused: {
    status: 422,
    title: 'The idempotency key belongs to another request',
  },
  currency_unsupported: { status: 422, title: 'The currency is not supported here' },
  amount_too_small: { status: 422, title: 'The amount is too small' },
  amount_too_large: { status: 422, title: 'The amount is too large' },
  corridor_unavailable: { status: 422, title: 'No rail takes this payout here' },
  list_too_broad: { status: 422, title: 'The filters name too many objects to look through' },
  cursor_not_found: { status: 422, title: 'The list has no such object to go on from' },
  quote_not_found: { status: 422, title: 'No such quote' },
  quote_expired: { status: 422, title: 'The quote has expired' },
  quote_used: { status: 422, title: 'The quote has been used' },
  beneficiary_not_found: { status: 422, title: 'No such beneficiary' },
  beneficiary_invalid: { status: 422, title: 'The beneficiary details are not valid' },
  currency_mismatch: {
    status: 422,
    title: 'The currency is not the one the beneficiary receives',
  },
  insufficient_funds: { status: 422, title: 'The available balance is too low' },
  webhook_url_refused: { status: 422, title: 'Webhooks cannot be sent to that address' },
  limit_reached: { status: 422, title: 'A limit of the account is reached' },
  batch_refused: { status: 422, title: 'Another item of the batch was refused' },
  rate_expired: { status: 422, title: 'The rates of the batch have expired' },
  // 429 and 503: the same request may succeed later.
  rate_limited: { status: 429, title: 'Too many requests in too short a time' },
  too_many_in_flight: { status: 429, title: 'Too many requests at one time' },
  headers_too_large: { status: 431, title: 'The request headers are too large' },
  rate_unavailable: { status: 503, title: 'No current rate for this corridor' },
  service_unavailable: { status: 503, title: 'The service cannot answer just now' },
  internal_error: { status: 500, title: 'The service failed' },
} as const;

export type RefusalCode = keyof typeof refusals;

/** Every code there is, in the order of the table. */
export const refusalCodes: readonly RefusalCode[] = Object.keys(refusals).filter(isRefusalCode);

function isRefusalCode(text: string): text is RefusalCode {
  return Object.hasOwn(refusals, text);
}

/**
 * One refusal. `param` is in the caller's own notation (`payouts[17][amount]`),
 * `expected` one sentence, `received` what came, shortened and never a secret.
 */
export type Refusal = {
  readonly refused: true;
  readonly code: RefusalCode;
  readonly param?: string;
  readonly expected?: string;
  readonly received?: string;
  readonly detail?: string;
};

/** Builds a refusal: the code, and whatever of the details is known. */
export function refuse(
  code: RefusalCode,
  details: Omit<Refusal, 'refused' | 'code'> = {},
): Refusal {
  return { refused: true, code, ...details };
}

/** Whether a function has returned a refusal in place of its value. */
export function isRefusal<T extends object>(value: T | Refusal): value is Refusal {
  return 'refused' in value && value.refused === true;
}

/** The HTTP status of a code (RFC 9110) and its title (RFC 9457). */
export function meaningOf(code: RefusalCode): { readonly status: number; readonly title: string } {
  return refusals[code];
}
