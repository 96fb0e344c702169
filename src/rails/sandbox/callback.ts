import { createHmac, timingSafeEqual } from 'node:crypto';
import type { CallbackEvent, CallbackRequest } from '../rail.js';
import { callbackBody } from './wire.js';

/** A callback is signed when it is sent; five minutes cover clocks that differ, not a replay. */
const toleranceSeconds = 300;

/**
 * Checks `bank-signature: t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">` and reads the
 * events. Undefined when the signature is not the bank's; a signed body that cannot be
 * read throws, for then the two sides no longer speak the same language.
 */
export function parseSandboxCallback(
  request: CallbackRequest,
  secret: string,
): readonly CallbackEvent[] | undefined {
  const [, seconds, signature] =
    /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(request.header('bank-signature')) ?? [];
  if (seconds === undefined || signature === undefined) return undefined;
  const ageSeconds = Math.abs(request.receivedAt.getTime() / 1000 - Number.parseInt(seconds, 10));
  if (ageSeconds > toleranceSeconds) return undefined;
  const expected = createHmac('sha256', secret).update(`${seconds}.`).update(request.body).digest();
  if (!timingSafeEqual(expected, Buffer.from(signature, 'hex'))) return undefined;
  const { events } = callbackBody.parse(JSON.parse(request.body.toString('utf8')));
  return events.map((event) => ({
    id: event.id,
    key: event.key,
    kind: event.type,
    amountMinor: event.amount,
    currency: event.currency,
    code: event.code,
    reason: event.reason,
  }));
}
