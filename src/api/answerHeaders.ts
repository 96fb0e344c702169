import { defaultApiVersion, versionHeaders } from '../contract/versions/index.js';

/**
 * Headers of every answer, wherever it is written. Strict-Transport-Security is not among them: a
 * client must ignore it without TLS (RFC 6797, 8.1), and only what ends TLS in front of this
 * process knows whether the whole host is to be reached by TLS for ever.
 */
export function everyAnswerHeaders(requestId: string): Readonly<Record<string, string>> {
  return {
    'Request-Id': requestId,
    ...versionHeaders(defaultApiVersion),
    // Answers are an account's own; what may be kept says so itself.
    'Cache-Control': 'no-store',
    'X-Content-Type-Options': 'nosniff',
    // Ids of payouts are in the paths.
    'Referrer-Policy': 'no-referrer',
  };
}
