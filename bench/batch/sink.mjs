// The integrator of the comparison, as a process of its own: takes webhooks at /<name>, and says
// at GET /<name> how many payouts it has heard of, how often one came again, and when the last
// new one came.
import { createServer } from 'node:http';

/** @type {Map<string, { payouts: Set<string>, duplicates: number, lastAtMs: number }>} */
const heard = new Map();

function of(name) {
  const known = heard.get(name) ?? { payouts: new Set(), duplicates: 0, lastAtMs: 0 };
  heard.set(name, known);
  return known;
}

function take(name, body) {
  const { type, data } = JSON.parse(body);
  // The end of a batch is announced too; what is compared are the payouts.
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
// The channel to the parent closes when the parent goes, however it went.
for (const end of ['disconnect', 'SIGTERM']) process.on(end, () => process.exit(0));
