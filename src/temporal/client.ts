import {
  Client,
  type ClientOptions,
  Connection,
  isRetryableError,
  makeGrpcRetryInterceptor,
} from '@temporalio/client';
import type { TemporalConfig } from '../config.js';
import { connectionOptions, refusalIn } from './connection.js';
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
    return refusalIn(error, namespace);
  }
}
