import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** A line to a server on which what the server says can be kept back. */
export type SilentLine = {
  readonly url: string;
  /**
   * Each connection on which the server says `words` hears neither them nor anything later,
   * until so many are silent; then this resolves. What the words tell of is done, and whoever
   * asked for it does not know.
   */
  readonly keepBack: (words: string, connections: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Opens a line to the server of a URL; it passes everything on until it is told otherwise. */
export async function openSilentLine(target: string): Promise<SilentLine> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let words = '';
  let speaking = 0;
  let done = () => {};

  const server = createServer((client) => {
    const upstream = connect(Number.parseInt(port, 10), hostname);
    let isSilent = false;
    client.pipe(upstream);
    upstream.on('data', (said: Buffer) => {
      if (!isSilent && speaking > 0 && said.includes(words)) {
        isSilent = true;
        speaking -= 1;
        if (speaking === 0) done();
      }
      if (!isSilent) client.write(said);
    });
    for (const [one, other] of [[client, upstream] as const, [upstream, client] as const]) {
      sockets.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const url = new URL(target);
  url.port = String(typeof address === 'object' && address !== null ? address.port : 0);
  return {
    url: url.href,
    keepBack: (wanted, connections) =>
      new Promise((resolve) => {
        words = wanted;
        speaking = connections;
        done = resolve;
      }),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
