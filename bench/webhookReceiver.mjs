// A webhook receiver as a separate process. It parses requests and counts them and their distinct events by
// path; any GET returns the counts.
import { createServer } from 'node:http';

/** @type {Map<string, { requests: number, ids: Set<string> }>} */
const seen = new Map();

function take(path, body) {
  const message = JSON.parse(body);
  const known = seen.get(path) ?? { requests: 0, ids: new Set() };
  seen.set(path, known);
  known.requests += 1;
  for (const { id } of message.type === 'event.batch' ? message.data : [message]) known.ids.add(id);
}

const server = createServer((request, response) => {
  if (request.method === 'GET') {
    const counts = [...seen].map(([path, { requests, ids }]) => [
      path,
      { requests, events: ids.size },
    ]);
    response.end(JSON.stringify(Object.fromEntries(counts)));
    return;
  }
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    take(request.url, Buffer.concat(parts).toString('utf8'));
    response.writeHead(200).end();
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ listening: `http://127.0.0.1:${server.address().port}` }));
});
// The IPC channel closes when the parent ends, even if it was killed.
for (const end of ['disconnect', 'SIGTERM']) process.on(end, () => process.exit(0));
