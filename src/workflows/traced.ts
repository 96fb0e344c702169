import {
  OpenTelemetryInboundInterceptor,
  OpenTelemetryInternalsInterceptor,
  OpenTelemetryOutboundInterceptor,
} from '@temporalio/interceptors-opentelemetry/lib/workflow/index.js';
import { type WorkflowInterceptors, workflowInfo } from '@temporalio/workflow';

/** What a request begins. Schedules and deliveries belong to none, and would be a trace every few seconds. */
const begunByRequests: ReadonlySet<string> = new Set(['payout', 'batch', 'batchChunk']);

/** Found by the SDK in the bundles of workers that trace (worker/bundle.ts). */
export const interceptors = (): WorkflowInterceptors =>
  begunByRequests.has(workflowInfo().workflowType)
    ? {
        inbound: [new OpenTelemetryInboundInterceptor()],
        outbound: [new OpenTelemetryOutboundInterceptor()],
        internals: [new OpenTelemetryInternalsInterceptor()],
      }
    : {};
