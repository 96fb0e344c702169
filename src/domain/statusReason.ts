import { isRefusalCode, meaningOf, type Refusal, revealsFunds, sentenceOf } from './refusal.js';
import reasons from './statusReasons.json' with { type: 'json' };

/**
 * Status reasons with their meaning and what the sender of the payout can do, in our words: first our own,
 * then those of ISO 20022 (external status and return reason code sets) that payout schemes use.
 */
export const statusReasons = new Map(Object.entries(reasons));

/**
 * Returns a status reason as a sentence.
 *
 * @param refusal the refusal of a payout that was never accepted; its code is the status reason
 */
export function statusReasonText(code: string, refusal: Refusal | null): string {
  // Only keys with permission may read the balance, but this text is also sent to webhook endpoints.
  if (refusal !== null && !revealsFunds(refusal.code)) return sentenceOf(refusal);
  if (isRefusalCode(code)) return `${meaningOf(code).title}.`;
  return statusReasons.get(code)?.text ?? `The bank gave the reason ${code}.`;
}
