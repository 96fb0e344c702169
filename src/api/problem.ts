import type { ContractObject } from '../contract/schemas.js';
import { meaningOf, type Refusal } from '../domain/refusal.js';
import { withoutSecrets } from '../telemetry.js';

/** One refused parameter inside a problem, or the problem's own first one. */
function memberOf({ code, param, expected, received, detail }: Refusal) {
  const shown = (text?: string) => text && withoutSecrets(text);
  return { code, param: shown(param), expected, received: shown(received), detail: shown(detail) };
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
  const { detail, ...member } = memberOf(first);
  return {
    type: `/docs/errors#${first.code}`,
    title,
    status,
    detail: detail ?? withoutSecrets(describe(first)),
    ...member,
    errors: sorted.map(memberOf),
    request_id: requestId,
  };
}

function describe({ param, expected, received, code }: Refusal): string {
  const what = param === undefined ? meaningOf(code).title : `The parameter ${param}`;
  const wanted = expected === undefined ? '' : `: expected ${expected}`;
  return `${what}${wanted}${received === undefined ? '' : `, received ${received}`}.`;
}
