import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

/** What the proxy does to a request between a client and the API. */
export type Fault =
  /** No fault; keeps the place of a request in the sequence. */
  | 'passed on'
  /** The request is executed, but the connection ends instead of the answer, or in the middle of it. */
  | 'answer lost'
  | 'answer cut'
  /** The request is executed, but its answer never arrives. */
  | 'silence'
  /** The request is not forwarded: the connection ends, or the proxy sends this response itself. */
  | 'hung up'
  | {
      readonly status: number;
      readonly headers?: Record<string, string>;
      readonly body?: string | Buffer;
    };

export type SeenRequest = {
  readonly route: string;
  readonly key: string | undefined;
  readonly userAgent: string | undefined;
  readonly prefer: string | undefined;
};

export type UnkindProxy = {
  readonly url: string;
  /** All requests of a route so far, such as `POST /v1/payouts`. */
  readonly seen: (route: string) => readonly SeenRequest[];
  /** Sets the faults of the next requests of a route, one each; later requests are forwarded. */
  readonly faults: (route: string, ...faults: readonly Fault[]) => void;
  readonly close: () => Promise<void>;
};

/** Opens a proxy in front of an API, on a separate port. */
export async function startUnkindProxy(apiUrl: string): Promise<UnkindProxy> {
  const seen: SeenRequest[] = [];
  const pending = new Map<string, Fault[]>();
  const server = createServer((request, response) => {
    const [path = ''] = (request.url ?? '').split('?');
    const route = `${request.method} ${path}`;
    const key = request.headers['idempotency-key']?.toString();
    const { 'user-agent': userAgent, prefer } = request.headers;
    seen.push({ route, key, userAgent, prefer: prefer?.toString() });
    void serve(apiUrl, request, response, pending.get(route)?.shift());
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}`,
    seen: (route) => seen.filter((one) => one.route === route),
    faults: (route, ...faults) => void pending.set(route, [...faults]),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function serve(
  apiUrl: string,
  request: IncomingMessage,
  response: ServerResponse,
  fault: Fault | undefined,
): Promise<void> {
  const body = await buffer(request);
  if (typeof fault === 'object') {
    return void response.writeHead(fault.status, fault.headers).end(fault.body);
  }
  if (fault === 'hung up') return void request.socket.destroy();
  const answer = await fetch(apiUrl + (request.url ?? ''), {
    method: request.method ?? 'GET',
    headers: headersOf(request),
    ...(body.length === 0 ? {} : { body }),
    redirect: 'manual',
  });
  const answered = Buffer.from(await answer.arrayBuffer());
  if (fault === 'silence') return;
  if (fault === 'answer lost') return void request.socket.destroy();
  // fetch has decoded the body, so the original encoding and length no longer apply.
  const kept = [...answer.headers].filter(
    ([name]) => !/^(content-encoding|connection)$/.test(name),
  );
  const headers = { ...Object.fromEntries(kept), 'content-length': answered.length };
  response.writeHead(answer.status, headers);
  if (fault !== 'answer cut') return void response.end(answered);
  response.write(answered.subarray(0, answered.length / 2), () => request.socket.destroy());
}

/** Headers of the connection itself, which are not forwarded. */
const ofConnection = new Set(['connection', 'host', 'content-length', 'transfer-encoding']);

function headersOf({ headers }: IncomingMessage): Headers {
  const passed = Object.entries(headers).filter(([name]) => !ofConnection.has(name));
  return new Headers(passed.map(([name, value]): [string, string] => [name, String(value)]));
}
