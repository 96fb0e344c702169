import { text } from 'node:stream/consumers';
import { Corridor } from '@corridor/client';

const { count }: { readonly count: number } = JSON.parse(await text(process.stdin));
const corridor = new Corridor();
const stop = new AbortController();
const events: (readonly [number, string, string])[] = [];
for await (const { sequence, type, data } of corridor.events.listen({ signal: stop.signal })) {
  events.push([sequence, type, data.id]);
  if (events.length === count) stop.abort();
}
const [after] = events[2] ?? [];
const resumed: number[] = [];
for await (const { sequence } of corridor.events.listen({ after })) {
  resumed.push(sequence);
  if (sequence === count) break;
}
const listed: number[] = [];
for await (const { sequence } of corridor.events.list({ limit: 3 })) listed.push(sequence);
console.log(JSON.stringify({ events, resumed, listed }));
