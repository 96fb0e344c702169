import { Client, Connection, isRetryableError, makeGrpcRetryInterceptor } from '@temporalio/client';

export type TemporalOptions = { readonly address: string; readonly namespace: string };

/**
 * Between two attempts at a call. The client's own pauses grow to five seconds, and a call that has
 * a deadline ends only after the pause in which it passes. An attempt while the server is away fails
 * in this process and costs next to nothing.
 */
const pauseMs = 100;

/** Longer than any call's deadline, which is what ends it. */
const mostAttempts = 200;

/** A client of its own connection; the first call finds out whether the server is there. */
export function connectTemporal({ address, namespace }: TemporalOptions): Client {
  const retry = makeGrpcRetryInterceptor({
    retryableDecider: (attempt, status) => attempt < mostAttempts && isRetryableError(status),
    // 8 is RESOURCE_EXHAUSTED: the server asks for fewer calls.
    delayFunction: (_attempt, { code }) => (code === 8 ? 1_000 : pauseMs),
  });
  return new Client({ connection: Connection.lazy({ address, interceptors: [retry] }), namespace });
}
