import { defaultApiVersion, versionHeaders } from '../contract/versions/index.js';

/**
 * Returns the headers of every response, whichever code writes it. Strict-Transport-Security is not among
 * them: clients must ignore it without TLS (RFC 6797, 8.1), and only the TLS terminator in front of this
 * process knows whether the whole host will always be served over TLS.
 */
export function everyAnswerHeaders(requestId: string): Readonly<Record<string, string>> {
  return {
    'Request-Id': requestId,
    ...versionHeaders(defaultApiVersion),
    // A response is private to its account. Those that may be cached override this header.
    'Cache-Control': 'no-store',
    'X-Content-Type-Options': 'nosniff',
    // Paths contain payout IDs.
    'Referrer-Policy': 'no-referrer',
  };
}
