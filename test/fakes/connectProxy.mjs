// An HTTP proxy for CONNECT alone, as a process of its own: node connectProxy.mjs [DENIED_PORT]
// It writes a line for each request, and for each connection that it has made the port it leaves from.
import { createServer } from 'node:http';
import { connect } from 'node:net';

const [denied] = process.argv.slice(2);
let unreached = 0;
const server = createServer((_, response) => response.writeHead(405).end());
server.on('connect', ({ url, headers }, client) => {
  const login = headers['proxy-authorization'] ?? 'nobody';
  process.stdout.write(`CONNECT ${url} by ${login}\n`);
  const { hostname, port } = new URL(`http://${url}`);
  const refuse = (status) => client.end(`HTTP/1.1 ${status} Refused\r\n\r\n`);
  client.on('error', () => client.destroy());
  if (port === denied) return refuse(403);
  const upstream = connect(Number(port), hostname.replace(/^\[(.*)\]$/, '$1'));
  // The second time it says nothing, as proxy-chain does.
  upstream.on('error', () => (unreached++ === 0 ? refuse(502) : client.destroy()));
  upstream.on('connect', () => {
    process.stdout.write(`leaves from ${upstream.localPort}\n`);
    client.write('HTTP/1.1 200 Connection Established\r\n\r\n');
    client.pipe(upstream).pipe(client);
  });
  client.on('close', () => upstream.destroy());
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`ready at http://127.0.0.1:${server.address().port}\n`);
});
// It ends with whoever has started it.
process.on('disconnect', () => process.exit());
