import { createHmac, timingSafeEqual } from 'node:crypto';
import type { CallbackReader, CallbackRequest } from '../rail.js';
import { callbackBody, sandboxName } from './wire.js';

/** Maximum age of a signature. Callbacks are signed when sent: this covers clock skew, not late replays. */
const toleranceSeconds = 300;

const signatureHeader = 'bank-signature';

/** Makes the reader of the sandbox bank's callbacks. Any of the secrets is valid: two during a rotation. */
export function createSandboxCallbacks(secrets: readonly string[]): CallbackReader {
  return {
    name: sandboxName,
    looksSigned: (head) => signatureOf(head) !== undefined,
    parseCallback: (request) => {
      const signed = signatureOf(request);
      if (signed === undefined) return undefined;
      const isSignedWith = (secret: string) =>
        timingSafeEqual(
          createHmac('sha256', secret).update(`${signed.seconds}.`).update(request.body).digest(),
          signed.digest,
        );
      if (!secrets.some(isSignedWith)) return undefined;
      const read = callbackBody.safeParse(jsonOf(request.body));
      if (read.success) return read.data.events;
      const where = read.error.issues.slice(0, 5).map(({ path }) => path.join('.') || 'the body');
      return { unreadable: where.join(', ') };
    },
  };
}

/** Parses `bank-signature: t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`; undefined if it is too old. */
function signatureOf({ header, receivedAt }: Omit<CallbackRequest, 'body'>) {
  const [, seconds, digest] =
    /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(header(signatureHeader)) ?? [];
  if (seconds === undefined || digest === undefined) return undefined;
  const ageSeconds = Math.abs(receivedAt.getTime() / 1000 - Number.parseInt(seconds, 10));
  return ageSeconds > toleranceSeconds
    ? undefined
    : { seconds, digest: Buffer.from(digest, 'hex') };
}

/** Parses the body. Returns undefined, which matches no schema, if the body is not JSON. */
function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
