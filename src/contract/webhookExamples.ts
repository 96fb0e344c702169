import { eventBatch, type WebhookType } from '../domain/event.js';
import { type ApiVersion, type JsonObject, render } from './versions/index.js';
import examples from './webhookExamples.json' with { type: 'json' };

/** What an endpoint receives for each type of event or a batch, as the published document shows it. */
export function webhookExample(type: WebhookType, version: ApiVersion): JsonObject {
  const event = { id: 'evt_01ky8m2x5b', type, timestamp: '2026-11-21T12:00:05.000Z' };
  if (type === eventBatch) {
    const data = [webhookExample('payout.settled', version)];
    return { ...event, id: 'evb_5c0d1f27a9', api_version: version, data };
  }
  const data = render(examples[type], version);
  return { ...event, api_version: version, sequence: 17, data };
}
