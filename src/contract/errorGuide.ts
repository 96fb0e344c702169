import type { RefusalCode } from '../domain/refusal.js';

/** What a code means to an integrator, and what to do about it. */
type Guidance = { readonly meaning: string; readonly remedy: string };

const sendAgain = 'Retry with the same idempotency key, after Retry-After if the response has it.';
const newKey = 'and send the request with a new idempotency key.';

/** One entry a code: the compiler finds the one that is missing. Shown at /docs/errors. */
export const errorGuide: Readonly<Record<RefusalCode, Guidance>> = {
  parameter_missing: {
    meaning: 'A required parameter is missing. Nothing was stored.',
    remedy: 'Send the parameter in `param`; `expected` describes its value.',
  },
  parameter_invalid: {
    meaning: 'A parameter value is malformed. Nothing was stored.',
    remedy: 'Correct each parameter in `errors`. You can reuse the idempotency key.',
  },
  parameter_unknown: {
    meaning: 'The request has a parameter that this route does not support, often a typo.',
    remedy: 'Use a name from `detail` or `expected`, or remove the parameter.',
  },
  parameters_exclusive: {
    meaning: 'A payout has both a quote and parameters that the quote already sets.',
    remedy: 'Send either `quote` or the parameters for the live rate.',
  },
  body_malformed: {
    meaning: 'The body is not valid for its Content-Type.',
    remedy: 'Check the encoding, or the number of names, where `expected` points.',
  },
  request_malformed: {
    meaning: 'The request is not valid HTTP/1.1. The connection is closed.',
    remedy: 'Use an HTTP library. `detail` says what could not be parsed.',
  },
  header_invalid: {
    meaning: 'A header value is malformed.',
    remedy: 'Correct the header in `param`.',
  },
  api_version_unknown: {
    meaning: 'This API version does not exist.',
    remedy: 'Send one of the versions in `expected`, or omit the header.',
  },
  api_key_missing: {
    meaning: 'The request has no Authorization header.',
    remedy: 'Send `Authorization: Bearer <API_KEY>`.',
  },
  api_key_invalid: {
    meaning: 'The API key is malformed, unknown or revoked. The API does not say which.',
    remedy: 'Check the key, or use another active key of the account.',
  },
  signature_invalid: {
    meaning: 'A bank callback has an invalid signature. Only banks receive this error.',
    remedy: 'Sign the callback with the current secret and the current time.',
  },
  live_mode_unsupported: {
    meaning: 'The route is available to test accounts only.',
    remedy: 'Use an API key that begins with `cor_test_`.',
  },
  not_found: {
    meaning: 'The object in the path does not exist or belongs to another account.',
    remedy: 'Check the id, and that the API key belongs to the account that owns the object.',
  },
  route_not_found: {
    meaning: 'The API has no route with this path.',
    remedy: 'Compare the path with the API reference. Paths have no trailing slash.',
  },
  method_not_allowed: {
    meaning: 'The path exists but does not support this method.',
    remedy: 'Use a method from the Allow header.',
  },
  request_timeout: {
    meaning: 'The headers or the body did not arrive in time. The connection is closed.',
    remedy: sendAgain,
  },
  request_in_progress: {
    meaning: 'The first request with this idempotency key is still being processed.',
    remedy: sendAgain,
  },
  payout_not_cancelable: {
    meaning: 'The rail has already accepted the payout, or the payout is final.',
    remedy: 'Retrieve the payout and check its status.',
  },
  body_too_large: {
    meaning: 'The body exceeds the size limit of the route.',
    remedy: 'Stay within the bytes in `expected`. Split a large batch into several.',
  },
  content_type_unsupported: {
    meaning: 'The route does not support this content type or encoding.',
    remedy: 'Send a type from `expected` with the matching Content-Type.',
  },
  expectation_unsupported: {
    meaning: 'The Expect header has a value other than 100-continue.',
    remedy: 'Omit the Expect header.',
  },
  idempotency_key_reused: {
    meaning:
      'The key was used with other parameters or on another route. This request had no effect.',
    remedy: 'Use a new key for each new request. `detail` names the object of this key.',
  },
  currency_unsupported: {
    meaning: 'The currency is valid, but you cannot send or receive it here.',
    remedy: `Choose one of the currencies in \`expected\` ${newKey}`,
  },
  amount_too_small: {
    meaning: 'After the fee, nothing would be left to pay out.',
    remedy: `Send at least the amount in \`expected\` ${newKey}`,
  },
  amount_too_large: {
    meaning: 'The amount is above the limit for this currency pair.',
    remedy: `Send at most the amount in \`expected\`, in several payouts if necessary, ${newKey}`,
  },
  corridor_unavailable: {
    meaning: 'No rail is available for payouts from this account in this currency.',
    remedy: 'Choose another currency, or contact the operator of the service.',
  },
  quote_not_found: {
    meaning: 'The quote does not exist or belongs to another account.',
    remedy: `Create a quote ${newKey}`,
  },
  quote_expired: {
    meaning: 'The payout was requested after the quote’s expires_at.',
    remedy: `Create a new quote ${newKey}`,
  },
  quote_used: {
    meaning: 'Another payout has used the quote. Each quote is valid for one payout.',
    remedy: `Check the payout in \`detail\`. To send another one, create a new quote ${newKey}`,
  },
  beneficiary_not_found: {
    meaning: 'The beneficiary does not exist, was deleted, or belongs to another account.',
    remedy: `Create the beneficiary ${newKey}`,
  },
  beneficiary_invalid: {
    meaning: 'The beneficiary details do not meet the requirements of its country.',
    remedy: `Correct each parameter in \`errors\` ${newKey}`,
  },
  currency_mismatch: {
    meaning: 'The beneficiary’s account does not accept the payout’s destination currency.',
    remedy: `Pay in the currency in \`expected\` ${newKey}`,
  },
  insufficient_funds: {
    meaning: 'The amount exceeds the available balance, which excludes funds on hold.',
    remedy: `Add funds ${newKey}`,
  },
  webhook_url_refused: {
    meaning: 'Webhooks cannot be sent to this URL.',
    remedy: `Use a publicly reachable https URL ${newKey}`,
  },
  limit_reached: {
    meaning: 'The account has the maximum number of these objects.',
    remedy: `Delete one that you no longer need ${newKey}`,
  },
  rate_expired: {
    meaning: 'The item was not decided before the rates of its batch expired.',
    remedy: 'Send the item again in a new batch.',
  },
  headers_too_large: {
    meaning: 'The request has too many headers, or they are too large.',
    remedy: 'Send only the headers that the route needs. Cookies are not used.',
  },
  rate_unavailable: {
    meaning: 'No sufficiently recent rate is available. The service never uses an outdated rate.',
    remedy: 'Retry in a few minutes. If a payout was refused, use a new idempotency key.',
  },
  service_unavailable: {
    meaning: 'Part of the service is unavailable. The request may or may not have been processed.',
    remedy: sendAgain,
  },
  internal_error: {
    meaning: 'The service failed unexpectedly. The error is logged under `request_id`.',
    remedy: 'Retry with the same idempotency key. If the error persists, contact us with the id.',
  },
  batch_not_cancelable: {
    meaning: 'Every payout of the batch is final.',
    remedy: 'Nothing is left to cancel. Check the payouts of the batch.',
  },
  batch_refused: {
    meaning: 'The batch is all-or-nothing, and another item was refused.',
    remedy: `Correct or remove the items with other error codes ${newKey}`,
  },
  cursor_not_found: {
    meaning: 'The object in starting_after or ending_before is not in this list.',
    remedy: 'Use the id of an object that the list has returned, or omit the cursor.',
  },
  list_too_broad: {
    meaning: 'Each filter matches many payouts, and too few of those examined match all filters.',
    remedy: 'Narrow the list by `created[gte]` and `created[lt]`, or add a more selective filter.',
  },
  rate_limited: {
    meaning: 'The account exceeded its rate limits, or the address sent too many invalid keys.',
    remedy: 'Wait for the time in Retry-After, then retry.',
  },
  scope_missing: {
    meaning: 'The API key is valid, but lacks the scope for this request.',
    remedy: 'Use a key with the scope in `expected`.',
  },
  too_many_in_flight: {
    meaning: 'Too many requests of the account, or callbacks of the address, are open or unread.',
    remedy: 'Wait for open requests to finish, read their responses, then retry.',
  },
};
