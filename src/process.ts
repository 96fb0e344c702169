import type { Logger } from 'pino';
import { type ApiConfig, ConfigError, type WorkerConfig } from './config.js';
import { createLog } from './log.js';

/** A running process: how to stop it, and how it reports that it has failed. */
export type Running = {
  readonly stop: () => Promise<void>;
  /** Rejects when the process can no longer do its work. Missing if it does not break by itself. */
  readonly broken?: Promise<never>;
};

/** Starts tracing if an OTLP endpoint is set. Otherwise OpenTelemetry's SDK is not even loaded. */
export async function tracingOf(part: string, config: ApiConfig | WorkerConfig, log: Logger) {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER_ARG: share } = config;
  if (endpoint === undefined) return undefined;
  const { startTracing } = await import('./tracing.js');
  return startTracing(part, { endpoint, share }, log);
}

/** Timeout of a graceful stop: the slowest worker's 20 s plus closing its connections. */
const stopLimitMs = 30_000;

/**
 * Runs a process until it receives a signal, its parent exits or it fails. Invalid settings end it with
 * the names of the variables. A second signal ends it immediately.
 */
export async function runProcess(part: string, start: () => Promise<Running>): Promise<void> {
  const stopRequested = new Promise<void>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => resolve());
    process.once('disconnect', () => resolve());
  });
  try {
    const running = await start();
    await Promise.race([stopRequested, running.broken ?? stopRequested]);
    setTimeout(() => process.exit(1), stopLimitMs).unref();
    await running.stop();
    process.exit(0);
  } catch (error) {
    if (error instanceof ConfigError) process.stderr.write(`${error.message}\n`);
    else createLog({ part, level: 'info' }).fatal({ err: error }, 'the process cannot continue');
    process.exit(1);
  }
}
