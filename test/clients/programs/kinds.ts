import { Corridor, type WebhookEndpoint } from '@corridor/client';

const corridor = new Corridor();
const fed: (readonly [number, string, object])[] = [];
let endpoint: WebhookEndpoint | undefined;
for await (const event of corridor.events.listen()) {
  const { sequence, type, data } = event;
  if (event.type === 'webhook_endpoint.disabled') endpoint = event.data;
  fed.push([sequence, type, data]);
  if (fed.length === 4) break;
}
const { data: listed } = await corridor.events.list();
const { data: read } = await corridor.events.retrieve('evt_2');
const kinds = fed.map(([sequence, type, data]) => [
  sequence,
  type,
  'object' in data && data.object,
]);
const disabled = endpoint?.status;
console.log(JSON.stringify({ kinds, whole: fed[1]?.[2], listed: listed.length, read, disabled }));
