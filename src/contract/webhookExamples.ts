import type { EventType, ProbeType } from '../domain/event.js';
import { type ApiVersion, type JsonObject, render } from './versions/index.js';
import examples from './webhookExamples.json' with { type: 'json' };

/** What an endpoint receives for each type of message, as the published document shows it. */
export function webhookExample(type: EventType | ProbeType, version: ApiVersion): JsonObject {
  const isEvent = !type.startsWith('webhook_endpoint');
  const sent = { id: `${isEvent ? 'evt' : 'prb'}_01ky8m2x5b`, type, timestamp };
  const data = render(examples[type], version);
  return { ...sent, api_version: version, ...(isEvent ? { sequence: 17 } : {}), data };
}

const timestamp = '2026-11-21T12:00:05.000Z';
