import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { createServer } from 'node:tls';
import type { makeCertificates } from '../fixtures/certificates.js';

/** A TLS terminator in front of a server. It requires a client certificate of the authority. */
export type TlsLine = {
  readonly address: string;
  /** The number of clients accepted so far. */
  readonly count: () => number;
  readonly close: () => Promise<void>;
};

/** Opens a TLS terminator for a gRPC server at `host:port` that has no TLS itself. */
export async function openTlsLine(
  target: string,
  { ca, server: own }: Awaited<ReturnType<typeof makeCertificates>>,
): Promise<TlsLine> {
  const [host = '', port = ''] = target.split(':');
  const open = new Set<Socket>();
  let count = 0;
  const server = createServer(
    {
      ...{ ca: readFileSync(ca.cert), cert: readFileSync(own.cert), key: readFileSync(own.key) },
      ...{ requestCert: true, rejectUnauthorized: true, ALPNProtocols: ['h2'] },
    },
    (client) => {
      count += 1;
      const upstream = connect(Number.parseInt(port, 10), host);
      client.pipe(upstream).pipe(client);
      for (const [one, other] of [[client, upstream] as const, [upstream, client] as const]) {
        open.add(one);
        one.on('error', () => other.destroy());
        one.on('close', () => other.destroy() && open.delete(one));
      }
    },
  );
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return {
    address: `127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`,
    count: () => count,
    close: async () => {
      server.close();
      for (const socket of open) socket.destroy();
      await once(server, 'close');
    },
  };
}
