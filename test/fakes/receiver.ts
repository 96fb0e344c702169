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
  /** From which port each of them came. */
  readonly ports: readonly string[];
  /** The next webhook that passes, also one that has come already; rejects after 30 s. */
  readonly next: (matches: (webhook: ReceivedWebhook) => boolean) => Promise<ReceivedWebhook>;
  /** What the receiver answers from now on; 200 at first. */
  readonly answerWith: (
    status: number,
    body?: string,
    headers?: Readonly<Record<string, string>>,
  ) => void;
  /** Answers 400 from now on to every body that matches. */
  readonly refuse: (matches: (body: string) => boolean) => void;
  /** Rejects unless every webhook that came was signed by a secret that is known. */
  readonly close: () => Promise<void>;
};

const patienceMs = 30_000;

/** An integrator's receiver, on a port of its own. It answers at once, or when `when` has it do so. */
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
      for (const look of waiting) look();
    });
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    received,
    ports,
    next: (matches) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const found = received.find(matches);
          if (found === undefined) return;
          waiting.delete(look);
          clearTimeout(timer);
          resolve(found);
        };
        const timer = setTimeout(() => {
          waiting.delete(look);
          reject(new Error(`No such webhook came within ${patienceMs} ms.`));
        }, patienceMs);
        waiting.add(look);
        look();
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
