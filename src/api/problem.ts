import type { ContractObject } from '../contract/schemas.js';
import { meaningOf, type Refusal, sentenceOf } from '../domain/refusal.js';
import { withoutSecrets } from '../log.js';
import { maxProblems } from './decoded.js';

/** Renders one refusal: an entry of `errors`, or the members at the top of the problem. */
function memberOf(refusal: Refusal) {
  const redact = (text?: string) => text && withoutSecrets(text);
  const [param, received] = [redact(refusal.param), redact(refusal.received)];
  const [ownDetail, meant, hint] = [refusal.detail, refusal.meant, refusal.hint].map(redact);
  // `expected` is not redacted: it is the service's own text, whose example may be an IBAN.
  const { code, line, expected } = refusal;
  const detail = sentenceOf({ ...refusal, param, received, detail: ownDetail, meant, hint });
  return { code, param, line, expected, received, detail };
}

/** Sorts refusals so that malformed parameters (400) come first: nothing of such a request was processed. */
export const malformedFirst = (refusals: readonly Refusal[]) =>
  refusals.toSorted((a, b) => meaningOf(a.code).status - meaningOf(b.code).status);

/**
 * Renders refusals as RFC 9457 problem details. The first refusal gives the code, the title and the members
 * at the top; `errors` lists as many as a response may. If some are malformed (400) and others refused, the
 * request counts as malformed, because nothing in it was processed.
 */
export function problemOf(
  refusals: readonly Refusal[],
  requestId: string,
): ContractObject<'problem'> {
  const sorted = malformedFirst(refusals);
  const [first] = sorted;
  if (first === undefined) throw new Error('A problem needs a refusal.');
  const { status, title } = meaningOf(first.code);
  return {
    type: `/docs/errors#${first.code}`,
    title,
    status,
    ...memberOf(first),
    errors: sorted.slice(0, maxProblems).map(memberOf),
    request_id: requestId,
  };
}
