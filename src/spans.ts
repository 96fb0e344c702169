import {
  type Attributes,
  context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';

// Without tracing.ts in the process these do nothing.
const tracer = trace.getTracer('corridor');

/**
 * A request as a span, in the trace that its `traceparent` names. A `tracestate` is left out: what
 * integrators write there is not for the bank.
 */
export function traceRequest<T>(traceparent: string, work: (span: Span) => Promise<T>): Promise<T> {
  const parent = propagation.extract(context.active(), { traceparent });
  return context.with(parent, () => spanOf('request', SpanKind.SERVER, {}, work));
}

/** A call to another system as a span of the trace that it belongs to. */
export function traceCall<T>(
  name: string,
  attributes: Attributes,
  call: () => Promise<T>,
): Promise<T> {
  return spanOf(name, SpanKind.CLIENT, attributes, call);
}

/** What says to another system which trace a call belongs to; nothing where there is none. */
export function traceHeaders(): Readonly<Record<string, string>> {
  const headers = {};
  propagation.inject(context.active(), headers);
  return headers;
}

function spanOf<T>(
  name: string,
  kind: SpanKind,
  attributes: Attributes,
  work: (span: Span) => Promise<T>,
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
