import type { RefusalCode } from '../domain/refusal.js';

/** What a code means to an integrator, and what to do about it. */
type Guidance = { readonly meaning: string; readonly remedy: string };

const sendAgain =
  'Send the request again, after Retry-After where the answer has it, with the same idempotency key.';
const newKey = 'and send the request with a new idempotency key.';

/** One entry a code: the compiler finds the one that is missing. Shown at /docs/errors. */
export const errorGuide: Readonly<Record<RefusalCode, Guidance>> = {
  parameter_missing: {
    meaning: 'A parameter that the route needs was not sent. Nothing was stored.',
    remedy: 'Send the parameter that `param` names; `expected` says what it takes.',
  },
  parameter_invalid: {
    meaning: 'A parameter was sent in a form that cannot be read. Nothing was stored.',
    remedy: 'Correct each parameter in `errors`; the same idempotency key may be used.',
  },
  parameter_unknown: {
    meaning: 'A name was sent that the route does not know: often a slip of the finger.',
    remedy: 'Use the name that `detail` or `expected` gives, or leave the parameter out.',
  },
  parameters_exclusive: {
    meaning: 'A payout names a quote and also what the quote already fixes.',
    remedy: 'Send either `quote`, or the parameters of the live rate.',
  },
  body_malformed: {
    meaning: 'The body is not the form or the JSON that its Content-Type announces.',
    remedy: 'Check the encoding, or the number of names, at the place that `expected` names.',
  },
  request_malformed: {
    meaning: 'What came on the connection is not a request of HTTP/1.1. The connection closes.',
    remedy: 'Use an HTTP library; `detail` says what could not be read.',
  },
  header_invalid: {
    meaning: 'A header has a form that cannot be read.',
    remedy: 'Correct the header that `param` names.',
  },
  api_version_unknown: {
    meaning: 'There is no API version of that name.',
    remedy: 'Send one of the versions in `expected`, or leave the header out.',
  },
  api_key_missing: {
    meaning: 'The request has no Authorization header.',
    remedy: 'Send `Authorization: Bearer <API_KEY>`.',
  },
  api_key_invalid: {
    meaning: 'The API key is mistyped, unknown or revoked; from outside these look the same.',
    remedy: 'Check the key, or use an active one of the account.',
  },
  signature_invalid: {
    meaning: 'A callback of a bank is not signed as agreed. Integrators do not meet this.',
    remedy: 'Sign the callback with the current secret and the current time.',
  },
  live_mode_unsupported: {
    meaning: 'The route exists for test accounts only.',
    remedy: 'Use an API key that begins with `cor_test_`.',
  },
  not_found: {
    meaning: 'The path names an object that is not there, or that is another account’s.',
    remedy: 'Check the id, and that the API key is of the account that owns the object.',
  },
  route_not_found: {
    meaning: 'No route has this path.',
    remedy: 'Compare the path with the reference; it ends without a slash.',
  },
  method_not_allowed: {
    meaning: 'The path is right and takes another method.',
    remedy: 'Use a method of the Allow header.',
  },
  request_timeout: {
    meaning: 'The headers or the body did not arrive in time. The connection closes.',
    remedy: sendAgain,
  },
  request_in_progress: {
    meaning: 'The first request with this idempotency key has not been answered yet.',
    remedy: sendAgain,
  },
  payout_not_cancelable: {
    meaning: 'The rail has taken the payout, or the payout is final.',
    remedy: 'Read the payout: its status says what became of it.',
  },
  body_too_large: {
    meaning: 'The body is longer than the route takes.',
    remedy: 'Send at most the bytes in `expected`; split a large batch into several.',
  },
  content_type_unsupported: {
    meaning: 'The body has a type or an encoding that is not read here.',
    remedy: 'Send what `expected` names, with its Content-Type.',
  },
  expectation_unsupported: {
    meaning: 'The Expect header asks for something else than 100-continue.',
    remedy: 'Leave the Expect header out.',
  },
  idempotency_key_reused: {
    meaning:
      'The key was used for a request with other parameters or on another route. Nothing was done.',
    remedy: 'Use a new key for a new request; `detail` names the object that the key belongs to.',
  },
  currency_unsupported: {
    meaning: 'The currency exists and cannot be sent or received here.',
    remedy: `Choose one of the currencies in \`expected\` ${newKey}`,
  },
  amount_too_small: {
    meaning: 'After the fee nothing would arrive.',
    remedy: `Send at least the amount in \`expected\` ${newKey}`,
  },
  amount_too_large: {
    meaning: 'The amount is above the limit of the corridor.',
    remedy: `Send at most the amount in \`expected\`, in several payouts if need be, ${newKey}`,
  },
  corridor_unavailable: {
    meaning: 'No bank carries payouts of this account in this currency.',
    remedy: 'Choose another currency, or ask the operator of the service.',
  },
  quote_not_found: {
    meaning: 'The quote is not there, or it is another account’s.',
    remedy: `Ask for a quote ${newKey}`,
  },
  quote_expired: {
    meaning: 'The payout was asked for after the quote’s expires_at.',
    remedy: `Ask for a new quote ${newKey}`,
  },
  quote_used: {
    meaning: 'Another payout has used the quote: a quote is good for one.',
    remedy: `Look at the payout that \`detail\` names; for another one, ask for a new quote ${newKey}`,
  },
  beneficiary_not_found: {
    meaning: 'The beneficiary is not there, was deleted, or is another account’s.',
    remedy: `Store the beneficiary ${newKey}`,
  },
  beneficiary_invalid: {
    meaning: 'Details of the beneficiary break the rules of its country.',
    remedy: `Correct each parameter in \`errors\` ${newKey}`,
  },
  currency_mismatch: {
    meaning: 'The payout would arrive in a currency that the beneficiary’s account does not take.',
    remedy: `Pay in the currency that \`expected\` names ${newKey}`,
  },
  insufficient_funds: {
    meaning: 'The amount is more than what is available; what other payouts hold does not count.',
    remedy: `Add funds ${newKey}`,
  },
  webhook_url_refused: {
    meaning: 'The address is not one that webhooks may be sent to.',
    remedy: `Use an https URL that the internet reaches ${newKey}`,
  },
  limit_reached: {
    meaning: 'The account has as many of these as it may have.',
    remedy: `Delete one that is not needed ${newKey}`,
  },
  rate_expired: {
    meaning: 'The item was decided too long after its batch, whose rates no longer hold.',
    remedy: 'Send the item again in a new batch.',
  },
  headers_too_large: {
    meaning: 'The request has more headers, or longer ones, than are read.',
    remedy: 'Send only the headers that the route needs; no cookies are read.',
  },
  rate_unavailable: {
    meaning: 'No rate that is new enough is known. An old one is never used in its place.',
    remedy: 'Try again in a few minutes; a payout that was refused for it takes a new key.',
  },
  service_unavailable: {
    meaning: 'A part of the service is away. The request may or may not have been taken.',
    remedy: sendAgain,
  },
  internal_error: {
    meaning: 'A mistake of ours. It is in our log under `request_id`.',
    remedy: 'Send the request again with the same idempotency key; if it stays, tell us the id.',
  },
  batch_not_cancelable: {
    meaning: 'Every payout of the batch is final.',
    remedy: 'Nothing is left to cancel; look at its payouts.',
  },
  batch_refused: {
    meaning: 'The batch is all-or-nothing, and another of its items was refused.',
    remedy: `Repair or leave out the items with codes of their own, and send the batch ${newKey}`,
  },
  cursor_not_found: {
    meaning: 'starting_after or ending_before names nothing of this list.',
    remedy: 'Use the id of an object that the list has shown, or begin without one.',
  },
  list_too_broad: {
    meaning: 'Each filter names many payouts, and of those that were looked at few have all.',
    remedy: 'Narrow it by `created[gte]` and `created[lt]`, or add a filter that names few.',
  },
  rate_limited: {
    meaning: 'The account has sent more than its policies allow, or the address many wrong keys.',
    remedy: 'Wait as long as Retry-After says, then send the request again.',
  },
  scope_missing: {
    meaning: 'The key is known, but was not given what this route needs.',
    remedy: 'Use a key with the scope that `expected` names.',
  },
  too_many_in_flight: {
    meaning:
      'So many requests of the account, or callbacks of the address, are not answered or read.',
    remedy: 'Wait for answers before sending more, and send this request again.',
  },
};
