import {
  OpenTelemetryInboundInterceptor,
  OpenTelemetryInternalsInterceptor,
  OpenTelemetryOutboundInterceptor,
} from '@temporalio/interceptors-opentelemetry/lib/workflow/index.js';
import { type WorkflowInterceptors, workflowInfo } from '@temporalio/workflow';

/** Workflows that requests start. Others belong to no request, and would add a trace every few seconds. */
const begunByRequests: ReadonlySet<string> = new Set(['payout', 'batch', 'batchChunk']);

/** Loaded by the SDK from the bundles of workers with tracing (worker/bundle.ts). */
export const interceptors = (): WorkflowInterceptors =>
  begunByRequests.has(workflowInfo().workflowType)
    ? {
        inbound: [new OpenTelemetryInboundInterceptor()],
        outbound: [new OpenTelemetryOutboundInterceptor()],
        internals: [new OpenTelemetryInternalsInterceptor()],
      }
    : {};
