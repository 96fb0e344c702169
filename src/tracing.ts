import { DiagLogLevel, diag, SpanKind } from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { Resource } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  NodeTracerProvider,
  ParentBasedSampler,
  type Sampler,
  SamplingDecision,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-node';
import { OpenTelemetryPlugin } from '@temporalio/interceptors-opentelemetry';
import type { Logger } from 'pino';

/** Timeout of one export. A stopping process flushes its spans; a silent collector must not delay it. */
const exportLimitMs = 3_000;

export type Tracing = {
  /** For the clients and workers of Temporal. */
  readonly plugins: OpenTelemetryPlugin[];
  /** Flushes the remaining spans; never rejects. */
  readonly stop: () => Promise<void>;
};

/**
 * Exports this process's spans to an OpenTelemetry collector. Processes load this file, and with it the
 * SDK, only if OTEL_EXPORTER_OTLP_ENDPOINT is set; until then spans.ts does nothing.
 */
export function startTracing(
  part: string,
  settings: { readonly endpoint: string; readonly share: number },
  log: Logger,
): Tracing {
  const failed = (message: string) => log.warn({ reason: message }, 'traces were not sent');
  const ignored = () => undefined;
  const logger = { error: failed, warn: failed, info: ignored, debug: ignored, verbose: ignored };
  diag.setLogger(logger, DiagLogLevel.WARN);
  const url = `${settings.endpoint.replace(/\/+$/, '')}/v1/traces`;
  const spanProcessor = new BatchSpanProcessor(
    new OTLPTraceExporter({ url, timeoutMillis: exportLimitMs }),
  );
  const resource = new Resource({ 'service.namespace': 'corridor', 'service.name': part });
  const provider = new NodeTracerProvider({
    resource,
    sampler: new ParentBasedSampler({ root: requestsAlone(settings.share) }),
    spanProcessors: [spanProcessor],
  });
  // Only trace context, not OpenTelemetry's default baggage, where integrators can put anything.
  provider.register({ propagator: new W3CTraceContextPropagator() });
  return {
    plugins: [new OpenTelemetryPlugin({ resource, spanProcessor })],
    stop: () => provider.shutdown().catch(ignored),
  };
}

/** Samples only traces that start with a request: bank callbacks and sweeps start none. */
function requestsAlone(share: number): Sampler {
  const ratio = new TraceIdRatioBasedSampler(share);
  return {
    shouldSample: (context, traceId, _name, kind) =>
      kind === SpanKind.SERVER
        ? ratio.shouldSample(context, traceId)
        : { decision: SamplingDecision.NOT_RECORD },
    toString: () => `RequestsAlone{${share}}`,
  };
}
