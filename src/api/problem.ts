import type { ContractObject } from '../contract/schemas.js';
import { meaningOf, type Refusal, sentenceOf } from '../domain/refusal.js';
import { withoutSecrets } from '../log.js';

/** One refused parameter inside a problem, or the problem's own first one. */
function memberOf(refusal: Refusal) {
  const shown = (text?: string) => text && withoutSecrets(text);
  const [param, received] = [shown(refusal.param), shown(refusal.received)];
  const [said, meant, hint] = [refusal.detail, refusal.meant, refusal.hint].map(shown);
  // What is expected is a text of ours, whose example may be an IBAN.
  const { code, line, expected } = refusal;
  const detail = sentenceOf({ ...refusal, param, received, detail: said, meant, hint });
  return { code, param, line, expected, received, detail };
}

/**
 * Refusals as RFC 9457 problem details. The first one gives code, title and the members at
 * the top; `errors` lists all of them. When some are malformed (400) and some refused, the
 * request counts as malformed: nothing of it was judged.
 */
export function problemOf(
  refusals: readonly Refusal[],
  requestId: string,
): ContractObject<'problem'> {
  const sorted = [...refusals].sort((a, b) => meaningOf(a.code).status - meaningOf(b.code).status);
  const [first] = sorted;
  if (first === undefined) throw new Error('A problem needs a refusal.');
  const { status, title } = meaningOf(first.code);
  return {
    type: `/docs/errors#${first.code}`,
    title,
    status,
    ...memberOf(first),
    errors: sorted.map(memberOf),
    request_id: requestId,
  };
}
