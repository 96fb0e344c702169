import { Corridor } from '@corridor/client';

const corridor = new Corridor();
const fed: (readonly [number, string, object])[] = [];
for await (const { sequence, type, data } of corridor.events.listen()) {
  fed.push([sequence, type, data]);
  if (fed.length === 3) break;
}
const { data: listed } = await corridor.events.list();
const { data: read } = await corridor.events.retrieve('evt_2');
const kinds = fed.map(([sequence, type, data]) => [
  sequence,
  type,
  'object' in data && data.object,
]);
console.log(JSON.stringify({ kinds, whole: fed[1]?.[2], listed: listed.length, read }));
