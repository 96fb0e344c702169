import { once } from 'node:events';
import { createServer } from 'node:http';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';
import type { ReceivedWebhook } from './receiver.js';
import { assertGenuine } from './webhookSecrets.js';

/** How a sink treats a request: the status that it responds with, or a dropped connection. */
type Behaviour = number | 'drop';

/** A receiver that sometimes fails. It records the sequence numbers of the events that it accepted. */
export async function startUnsteadySink(initialBehaviour: (request: number) => Behaviour) {
  const taken: number[] = [];
  const received: ReceivedWebhook[] = [];
  let requests = 0;
  let behaviour = initialBehaviour;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      requests += 1;
      const answer = behaviour(requests);
      if (answer === 'drop') return request.socket.destroy();
      const body = Buffer.concat(chunks).toString('utf8');
      const headers = Object.entries(request.headers).map(([name, value]) => [name, String(value)]);
      received.push({ headers: Object.fromEntries(headers), body });
      if (answer === 200) taken.push(JSON.parse(body).sequence);
      response.writeHead(answer).end();
    });
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    taken,
    requests: () => requests,
    behave: (next: (request: number) => Behaviour) => {
      behaviour = next;
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
      await assertGenuine(received);
    },
  };
}
