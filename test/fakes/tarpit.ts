import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

export type Tarpit = {
  readonly url: string;
  /** The number of requests that are waiting for an answer now. */
  readonly held: () => number;
  /** The `webhook-id` of every request, in order of arrival. */
  readonly asked: readonly string[];
  /** Breaks all connections and accepts no more. */
  readonly close: () => Promise<void>;
};

/** A receiver that accepts every request and never responds. */
export async function startTarpit(): Promise<Tarpit> {
  const waiting = new Set<ServerResponse>();
  const received: string[] = [];
  const server = createServer((request, response) => {
    received.push(String(request.headers['webhook-id']));
    request.resume();
    waiting.add(response);
    response.on('close', () => waiting.delete(response));
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    held: () => waiting.size,
    asked: received,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
