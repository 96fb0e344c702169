import { isRefusalCode, meaningOf, type Refusal, revealsFunds, sentenceOf } from './refusal.js';
import reasons from './statusReasons.json' with { type: 'json' };

/**
 * What a reason means, and what the sender of the payout can do: our own first, then those of ISO
 * 20022 (external status and return reason code sets) that payout schemes use, in our words.
 */
export const statusReasons = new Map(Object.entries(reasons));

/**
 * A status reason in a sentence.
 *
 * @param refusal of a payout that was never accepted, whose code its reason is
 */
export function statusReasonText(code: string, refusal: Refusal | null): string {
  // The balance is for keys that may read it; this is sent to webhook endpoints.
  if (refusal !== null && !revealsFunds(refusal.code)) return sentenceOf(refusal);
  if (isRefusalCode(code)) return `${meaningOf(code).title}.`;
  return statusReasons.get(code)?.text ?? `The bank gave the reason ${code}.`;
}
