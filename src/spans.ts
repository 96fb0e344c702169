import {
  type Attributes,
  context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';

// A no-op unless tracing.ts is loaded in this process.
const tracer = trace.getTracer('corridor');

/**
 * Runs a request as a span of the trace that its `traceparent` names. `tracestate` is dropped, because
 * integrators' data must not reach the bank.
 */
export function traceRequest<T>(traceparent: string, work: (span: Span) => Promise<T>): Promise<T> {
  const parent = propagation.extract(context.active(), { traceparent });
  return context.with(parent, () => traceCall('request', {}, work, SpanKind.SERVER));
}

/** Returns the headers that pass the current trace to another system; empty if there is no trace. */
export function traceHeaders(): Readonly<Record<string, string>> {
  const headers = {};
  propagation.inject(context.active(), headers);
  return headers;
}

/** Runs work, by default a call to another system, as a span of the current trace. */
export function traceCall<T>(
  name: string,
  attributes: Attributes,
  work: (span: Span) => Promise<T>,
  kind = SpanKind.CLIENT,
): Promise<T> {
  return tracer.startActiveSpan(name, { kind, attributes }, async (span) => {
    try {
      return await work(span);
    } catch (error) {
      span.setStatus({ code: SpanStatusCode.ERROR });
      throw error;
    } finally {
      span.end();
    }
  });
}
