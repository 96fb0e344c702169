// The integrator of the comparison, as a separate process. Receives webhooks at /<name>. GET /<name> returns
// the number of distinct payouts, the number of duplicates and the time of the last new one.
import { createServer } from 'node:http';

/** @type {Map<string, { payouts: Set<string>, duplicates: number, lastAtMs: number }>} */
const received = new Map();

function of(name) {
  const known = received.get(name) ?? { payouts: new Set(), duplicates: 0, lastAtMs: 0 };
  received.set(name, known);
  return known;
}

function take(name, body) {
  const { type, data } = JSON.parse(body);
  // Ignores the event for the end of a batch: only payouts are compared.
  if (type !== 'payout.settled') return;
  const known = of(name);
  if (known.payouts.has(data.id)) {
    known.duplicates += 1;
  } else {
    known.payouts.add(data.id);
    known.lastAtMs = Date.now();
  }
}

const server = createServer((request, response) => {
  const name = request.url ?? '/';
  if (request.method === 'GET') {
    const { payouts, duplicates, lastAtMs } = of(name);
    response.end(JSON.stringify({ payouts: payouts.size, duplicates, lastAtMs }));
    return;
  }
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    take(name, Buffer.concat(parts).toString('utf8'));
    response.writeHead(200).end();
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ listening: `http://127.0.0.1:${server.address().port}` }));
});
// The IPC channel closes when the parent ends, even if it was killed.
for (const end of ['disconnect', 'SIGTERM']) process.on(end, () => process.exit(0));
