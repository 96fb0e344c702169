import { once } from 'node:events';
import { createServer } from 'node:http';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';
import { assertGenuine } from './webhookSecrets.js';

export type ReceivedWebhook = {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
};

export type Receiver = {
  readonly url: string;
  readonly received: readonly ReceivedWebhook[];
  /** The source port of each webhook. */
  readonly ports: readonly string[];
  /** The first webhook that matches, including those received already; rejects after 30 s. */
  readonly next: (matches: (webhook: ReceivedWebhook) => boolean) => Promise<ReceivedWebhook>;
  /** Sets the response from now on; the default is 200. */
  readonly answerWith: (
    status: number,
    body?: string,
    headers?: Readonly<Record<string, string>>,
  ) => void;
  /** Responds 400 from now on to every matching body. */
  readonly refuse: (matches: (body: string) => boolean) => void;
  /** Rejects unless every webhook received was signed with a known secret. */
  readonly close: () => Promise<void>;
};

const patienceMs = 30_000;

/** An integrator's receiver on a separate port. It responds at once, or when `when` lets it. */
export async function startReceiver(
  when: (answer: () => void) => void = (answer) => answer(),
): Promise<Receiver> {
  const received: ReceivedWebhook[] = [];
  const ports: string[] = [];
  const waiting = new Set<() => void>();
  let status = 200;
  let answered = '';
  let sent: Readonly<Record<string, string>> = {};
  let isRefused = (_body: string) => false;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString('utf8');
      when(() => response.writeHead(isRefused(body) ? 400 : status, sent).end(answered));
      const headers = Object.fromEntries(
        Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
      );
      received.push({ headers, body });
      ports.push(String(request.socket.remotePort));
      for (const check of waiting) check();
    });
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    received,
    ports,
    next: (matches) =>
      new Promise((resolve, reject) => {
        const check = () => {
          const found = received.find(matches);
          if (found === undefined) return;
          waiting.delete(check);
          clearTimeout(timer);
          resolve(found);
        };
        const timer = setTimeout(() => {
          waiting.delete(check);
          reject(new Error(`No matching webhook was received within ${patienceMs} ms.`));
        }, patienceMs);
        waiting.add(check);
        check();
      }),
    answerWith: (next, body = '', headers = {}) => {
      status = next;
      sent = headers;
      answered = body;
    },
    refuse: (matches) => {
      isRefused = matches;
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
      await assertGenuine(received);
    },
  };
}
