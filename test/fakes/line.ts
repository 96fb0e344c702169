import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** A line to a server: who connects to its URL talks through it, and a test listens in. */
export type Line = {
  readonly url: string;
  /** The callers' sides of all connections that are open. */
  readonly clients: ReadonlySet<Socket>;
  /** Ends all connections, and takes no more. */
  readonly close: () => Promise<void>;
};

/**
 * Opens a line to the server of a URL, or to that of another one that `dial` names. What a client says reaches the server once `join` has
 * dialled; what the server says is passed on by `join`, or not. A connection that ends on one
 * side, with an error or without, ends on the other.
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
