import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

/** Time limit for a trapped request to arrive. A payout normally reaches its rail within a second. */
const patienceMs = 20_000;

/**
 * A proxy between the worker and the bank. It lets a test act exactly between two steps that neither
 * a row nor a log line distinguishes.
 */
export type RailProxy = {
  readonly url: string;
  /** Never forwards the next request to the path; resolves when it has arrived. */
  readonly keepRequest: (path: string) => Promise<void>;
  /** Forwards the next request to the path, but never returns the bank's answer. */
  readonly keepAnswer: (path: string) => Promise<void>;
  /** The trace headers of each request. */
  readonly traceHeaders: readonly (readonly [name: string, value: string])[][];
  readonly close: () => Promise<void>;
};

type Trap = {
  readonly path: string;
  readonly kept: 'request' | 'answer';
  readonly spring: () => void;
};

export async function startRailProxy(bankUrl: string): Promise<RailProxy> {
  let trap: Trap | undefined;
  const traceHeaders: [string, string][][] = [];
  const server = createServer((request, response) => {
    const names = ['traceparent', 'tracestate', 'baggage'];
    const found = Object.entries(request.headers).filter(([name]) => names.includes(name));
    traceHeaders.push(found.map(([name, value]) => [name, String(value)]));
    const sprung = trap?.path === request.url ? trap : undefined;
    if (sprung !== undefined) trap = undefined;
    pass(bankUrl, request, response, sprung).catch(() => response.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;

  const set = (kept: Trap['kept'], path: string) =>
    new Promise<void>((resolve, reject) => {
      const late = () =>
        reject(new Error(`No request for ${path} was received within ${patienceMs} ms.`));
      const timer = setTimeout(late, patienceMs);
      const spring = () => {
        clearTimeout(timer);
        resolve();
      };
      trap = { path, kept, spring };
    });

  return {
    url: `http://127.0.0.1:${port}`,
    keepRequest: (path) => set('request', path),
    keepAnswer: (path) => set('answer', path),
    traceHeaders,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function pass(
  bankUrl: string,
  request: IncomingMessage,
  response: ServerResponse,
  trap: Trap | undefined,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  if (trap?.kept === 'request') return trap.spring();
  const { authorization = '', 'content-type': contentType = '' } = request.headers;
  const answer = await fetch(`${bankUrl}${request.url}`, {
    method: request.method ?? 'GET',
    headers: { authorization, 'content-type': contentType },
    ...(chunks.length === 0 ? {} : { body: Buffer.concat(chunks) }),
  });
  const body = await answer.text();
  if (trap !== undefined) return trap.spring();
  response.writeHead(answer.status, { 'content-type': 'application/json' }).end(body);
}
