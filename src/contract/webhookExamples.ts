import { eventBatch, probeTypes, type WebhookType } from '../domain/event.js';
import { type ApiVersion, type JsonObject, render } from './versions/index.js';
import examples from './webhookExamples.json' with { type: 'json' };

/** Returns an example of what an endpoint receives for a type of message, for the published document. */
export function webhookExample(type: WebhookType, version: ApiVersion): JsonObject {
  const isEvent = !probeTypes.some((probe) => probe === type);
  const sent = { id: `${isEvent ? 'evt' : 'prb'}_01ky8m2x5b`, type, timestamp };
  if (type === eventBatch) {
    const data = [webhookExample('payout.settled', version)];
    return { ...sent, id: 'evb_5c0d1f27a9', api_version: version, data };
  }
  // A test message shows the endpoint in its own version.
  const own = type === 'webhook_endpoint.test' ? { api_version: version } : {};
  const data = render({ ...examples[type], ...own }, version);
  return { ...sent, api_version: version, ...(isEvent ? { sequence: 17 } : {}), data };
}

const timestamp = '2026-11-21T12:00:05.000Z';
