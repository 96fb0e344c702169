import { createServer, type IncomingMessage } from 'node:http';
import { z } from 'zod';
import { listenOnAnyPort } from '../stack/ports.js';
import { verifyWebhook } from './verifyWebhook.js';

const eventShape = z.object({
  id: z.string(),
  type: z.string(),
  data: z.object({ id: z.string() }),
});
export type ReceivedEvent = z.infer<typeof eventShape>;

export type Receiver = Awaited<ReturnType<typeof startReceiver>>;

/** Starts an integrator's webhook receiver on a free port. It answers 200 and verifies signatures. */
export async function startReceiver() {
  const events = new Map<string, ReceivedEvent>();
  const counts = new Map<string, number>();
  let secrets: readonly string[] = [];
  let waiting:
    | { readonly take: (event: ReceivedEvent) => void; readonly fail: () => void }
    | undefined;
  const take = (request: IncomingMessage, body: string) => {
    const header = (name: string) => String(request.headers[name] ?? '');
    const headers = {
      'webhook-id': header('webhook-id'),
      'webhook-timestamp': header('webhook-timestamp'),
      'webhook-signature': header('webhook-signature'),
    };
    const nowSeconds = Math.floor(Date.now() / 1000);
    if (!verifyWebhook({ headers, body, secrets, nowSeconds })) return waiting?.fail();
    const event = eventShape.parse(JSON.parse(body));
    // Deduplicated by ID, because webhooks are delivered at least once.
    if (!events.has(event.id)) counts.set(event.type, (counts.get(event.type) ?? 0) + 1);
    events.set(event.id, event);
    waiting?.take(event);
  };
  const server = createServer((request, response) => {
    readText(request).then(
      (body) => {
        response.writeHead(200).end();
        take(request, body);
      },
      () => response.destroy(),
    );
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    trust: (secret: string): void => {
      secrets = [secret];
    },
    /** Returns the number of distinct events of a type received so far. */
    count: (type: string): number => counts.get(type) ?? 0,
    /** Waits for an event. Returns at once if it has already arrived. */
    next: (isIt: (event: ReceivedEvent) => boolean, limitMs: number) =>
      new Promise<ReceivedEvent>((resolve, reject) => {
        const earlier = [...events.values()].find(isIt);
        if (earlier !== undefined) return resolve(earlier);
        const late = () => reject(new Error('No webhook arrived in time.'));
        // Does not keep an interrupted demo alive.
        const timer = setTimeout(late, limitMs).unref();
        waiting = {
          take: (event) => {
            if (!isIt(event)) return;
            clearTimeout(timer);
            resolve(event);
          },
          fail: () => reject(new Error('The signature of a webhook is invalid.')),
        };
      }),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

async function readText(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString('utf8');
}
