import { X509Certificate } from 'node:crypto';
import {
  Client,
  type ClientOptions,
  Connection,
  isRetryableError,
  makeGrpcRetryInterceptor,
} from '@temporalio/client';
import type { TemporalConfig } from '../config.js';
import { show } from '../metrics.js';
import { encryptingCodec } from './encryption.js';

/**
 * Pause between two attempts at a call. The client's own pauses grow to five seconds, and a call with
 * a deadline ends only after the pause in which the deadline passes. An attempt while the server is
 * unreachable fails in this process and costs next to nothing.
 */
const pauseMs = 100;

/** Maximum attempts at a call: enough to last beyond any call's deadline, which is what ends the call. */
const mostAttempts = 200;

/** A healthy server answers in milliseconds; if it does not answer, the calls that follow fail and say so. */
const answerLimitMs = 3_000;

/** The connection options shared by clients and workers. */
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

/** The converter with which clients and workers turn values into payloads. */
export const dataConverterOf = ({ TEMPORAL_ENCRYPTION_KEYS: keys }: TemporalConfig) => ({
  payloadCodecs: keys === undefined ? [] : [encryptingCodec(keys)],
});

/** Creates a client with a separate connection. The first call connects, and fails if that fails. */
export function connectTemporal(
  options: TemporalConfig,
  plugins: ClientOptions['plugins'] = [],
): Client {
  const retry = makeGrpcRetryInterceptor({
    retryableDecider: (attempt, status) => attempt < mostAttempts && isRetryableError(status),
    // 8 is RESOURCE_EXHAUSTED: the server asks for fewer calls.
    delayFunction: (_attempt, { code }) => (code === 8 ? 1_000 : pauseMs),
  });
  return new Client({
    connection: Connection.lazy({ ...connectionOptions(options), interceptors: [retry] }),
    namespace: options.TEMPORAL_NAMESPACE,
    dataConverter: dataConverterOf(options),
    plugins,
  });
}

/** Whether the server is reachable. */
export function isReachable({ connection }: Client): Promise<boolean> {
  const ask = () => connection.workflowService.getSystemInfo({});
  return connection.withDeadline(Date.now() + answerLimitMs, ask).then(
    () => true,
    () => false,
  );
}

/**
 * Returns why the server refuses the namespace or the API key, with the name of the variable. Undefined
 * if it accepts both, or if it does not answer, since it may do so later.
 */
export async function refusalOf({ connection, options }: Client): Promise<string | undefined> {
  const { namespace } = options;
  try {
    await connection.withDeadline(Date.now() + answerLimitMs, () =>
      connection.workflowService.describeNamespace({ namespace }),
    );
    return undefined;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    // 5 is NOT_FOUND, 7 PERMISSION_DENIED and 16 UNAUTHENTICATED.
    if (code === 5)
      return `TEMPORAL_NAMESPACE: expected a namespace of the server, not ${namespace}`;
    if (code === 7 || code === 16)
      return `TEMPORAL_API_KEY or TEMPORAL_TLS_CERT: expected one that the server admits to ${namespace}`;
    return undefined;
  }
}
