import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

export type Tarpit = {
  readonly url: string;
  /** Requests that wait for an answer at this moment. */
  readonly held: () => number;
  /** The `webhook-id` of every request, in the order of their arrival. */
  readonly asked: readonly string[];
  /** Breaks every connection off and takes no more. */
  readonly close: () => Promise<void>;
};

/** A receiver that takes every request and answers none. */
export async function startTarpit(): Promise<Tarpit> {
  const waiting = new Set<ServerResponse>();
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(String(request.headers['webhook-id']));
    request.resume();
    waiting.add(response);
    response.on('close', () => waiting.delete(response));
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    held: () => waiting.size,
    asked,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
