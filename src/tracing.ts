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

/** A process that stops sends what it has; a collector that does not answer must not hold it up. */
const exportLimitMs = 3_000;

export type Tracing = {
  /** For the clients and workers of Temporal. */
  readonly plugins: OpenTelemetryPlugin[];
  /** Sends what is left; it never rejects. */
  readonly stop: () => Promise<void>;
};

/**
 * Sends the spans of this process to an OpenTelemetry collector. Processes load this file, and with
 * it the SDK, only where OTEL_EXPORTER_OTLP_ENDPOINT is set; spans.ts does nothing until then.
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
  // Not baggage, which OpenTelemetry passes on as well: integrators write there what they like.
  provider.register({ propagator: new W3CTraceContextPropagator() });
  return {
    plugins: [new OpenTelemetryPlugin({ resource, spanProcessor })],
    stop: () => provider.shutdown().catch(ignored),
  };
}

/** A trace begins with a request: what the bank reports and what is swept up begin none. */
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
