import { X509Certificate } from 'node:crypto';
import type { TemporalConfig } from '../config.js';
import { show } from '../metrics.js';

/** Returns the connection options that clients and workers share. */
export function connectionOptions(options: TemporalConfig) {
  const { TEMPORAL_TLS_CA: ca, TEMPORAL_TLS_CERT: crt, TEMPORAL_TLS_KEY: key } = options;
  const { TEMPORAL_TLS_SERVER_NAME: name, TEMPORAL_API_KEY: apiKey } = options;
  const isTls = options.TEMPORAL_TLS ?? (ca ?? crt ?? name ?? apiKey) !== undefined;
  const certificates = { TEMPORAL_TLS_CA: ca, TEMPORAL_TLS_CERT: crt };
  for (const [certificate, pem] of Object.entries(certificates)) {
    if (pem === undefined) continue;
    const endMs = Date.parse(new X509Certificate(pem).validTo);
    show('certificate_end_timestamp_seconds', { certificate }, endMs / 1000);
  }
  const tls = {
    ...(ca && { serverRootCACertificate: Buffer.from(ca) }),
    ...(name && { serverNameOverride: name }),
    ...(crt && key && { clientCertPair: { crt: Buffer.from(crt), key: Buffer.from(key) } }),
  };
  return { address: options.TEMPORAL_ADDRESS, tls: isTls && tls, ...(apiKey && { apiKey }) };
}

/** Returns why a call was refused, with the name of the variable. Undefined if it failed for another reason. */
export function refusalIn(error: unknown, namespace: string): string | undefined {
  if (!(error instanceof Error && 'code' in error)) return undefined;
  const { code, message } = error;
  // 5 is NOT_FOUND, which a workflow may be as well; 7 is PERMISSION_DENIED and 16 UNAUTHENTICATED.
  if (code === 5 && !message.includes('workflow not found'))
    return `TEMPORAL_NAMESPACE: expected a namespace of the server, not ${namespace}`;
  if (code === 7 || code === 16)
    return `TEMPORAL_API_KEY or TEMPORAL_TLS_CERT: expected one that the server admits to ${namespace}`;
  return undefined;
}
