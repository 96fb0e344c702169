import type { Logger } from 'pino';
import { type ApiConfig, ConfigError, type WorkerConfig } from './config.js';

/** A process that runs: how it is stopped, and what it does when it breaks by itself. */
export type Running = {
  readonly stop: () => Promise<void>;
  /** Rejects when the process can no longer do its work. */
  readonly broken: Promise<never>;
};

/** Starts to trace where the setting says so. Without it nothing of OpenTelemetry's SDK is loaded. */
export async function tracingOf(part: string, config: ApiConfig | WorkerConfig, log: Logger) {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER_ARG: share } = config;
  if (endpoint === undefined) return undefined;
  const { startTracing } = await import('./tracing.js');
  return startTracing(part, { endpoint, share }, log);
}

/** What finishing may take: the slowest worker's 20 s and the end of its connections. */
const stopLimitMs = 30_000;

/**
 * Runs a process until a signal asks it to stop, its parent is gone or it breaks. A wrong
 * setting ends it with the names of the variables; a second signal ends it at once.
 */
export async function runProcess(start: () => Promise<Running>, log: () => Logger): Promise<void> {
  const asked = new Promise<'asked'>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const)
      process.once(signal, () => resolve('asked'));
    process.once('disconnect', () => resolve('asked'));
  });
  try {
    const running = await start();
    await Promise.race([asked, running.broken]);
    setTimeout(() => process.exit(1), stopLimitMs).unref();
    await running.stop();
    process.exit(0);
  } catch (error) {
    if (error instanceof ConfigError) process.stderr.write(`${error.message}\n`);
    else log().fatal({ err: error }, 'the process cannot go on');
    process.exit(1);
  }
}
