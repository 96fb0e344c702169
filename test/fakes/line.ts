import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** A TCP forwarder to a server. Clients connect to its URL, and a test can watch or alter the traffic. */
export type Line = {
  readonly url: string;
  /** The client-side sockets of all open connections. */
  readonly clients: ReadonlySet<Socket>;
  /** Ends all connections and accepts no more. */
  readonly close: () => Promise<void>;
};

/**
 * Opens a forwarder to the server of a URL, or to another server that `dial` is given. Data from a
 * client reaches the server once `join` has called `dial`. Data from the server is forwarded only if
 * `join` does so. When a connection ends on one side, with or without an error, the other side ends too.
 */
export async function openLine(
  target: string,
  join: (client: Socket, dial: (to?: string) => Socket) => void,
): Promise<Line> {
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client);
    client.on('close', () => clients.delete(client));
    join(client, (to = target) => {
      const { hostname, port } = new URL(to);
      const upstream = connect(Number.parseInt(port, 10), hostname);
      client.pipe(upstream);
      for (const [one, other] of [[client, upstream] as const, [upstream, client] as const]) {
        one.on('error', () => other.destroy());
        one.on('close', () => other.destroy());
      }
      return upstream;
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const url = new URL(target);
  url.port = String(typeof address === 'object' && address !== null ? address.port : 0);
  return {
    url: url.href,
    clients,
    close: async () => {
      for (const client of clients) client.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
