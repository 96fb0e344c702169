import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { newId } from '../db/id.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import { everyAnswerHeaders } from './answerHeaders.js';
import { type TrustedProxies, trustProxies } from './clientAddress.js';
import { admitConnections, trusted } from './connections.js';
import { problemOf } from './problem.js';

export const httpLimits = {
  /** Maximum size of all headers. An integrator's own are under 1 KiB; proxies and tracing add a few more. */
  headerBytes: 16 * 1024,
  /** Maximum number of headers. Node would silently drop later ones, and with them an Idempotency-Key. */
  headers: 100,
  /** Maximum number of connections, whose headers hold up to 80 MB. More need another process anyway. */
  connections: 5_000,
  /** Maximum number of keyless connections from one address: a few times what a customer has in flight. */
  anonymous: 250,
  /**
   * Idle timeout of a trusted connection: longer than a typical proxy's (60 s), so that the proxy closes it.
   */
  idleMs: 75_000,
  /** Idle timeout without a key: such a client sends its next request at once, or has no reason to stay. */
  strangerIdleMs: 5_000,
  /** Timeout for the headers: 16 KiB take under a second. It cuts off clients that send slowly or nothing. */
  headersMs: 5_000,
  /** Timeout for the whole request. A line of 2.5 Mbit/s transfers the longest body, 8 MiB, in this time. */
  requestMs: 30_000,
  /** Timeout for reading a response of up to about 1 MB: a client that reads slower would fill the memory. */
  answerMs: 30_000,
  /** How often the timeouts are checked. With Node's default of 30 s a slow client could double them. */
  checkMs: 1_000,
  /** How long a refused client may still be sending, so that it can read the refusal before it is cut off. */
  lingerMs: 1_000,
  /** Timeout for a stop. A deployment does not wait for callers who asked to wait: they may ask again. */
  stopMs: 8_000,
} as const;
type HttpLimits = { readonly [Name in keyof typeof httpLimits]: number };

/** What is needed to refuse a request, and to log its sender. */
type Refusing = {
  readonly log: Pick<Logger, 'info'>;
  readonly proxies: TrustedProxies;
  readonly limits: HttpLimits;
};

/** Responses that are not completely sent, by connection, in the order of their requests. */
type Exchanges = Map<Duplex, Set<ServerResponse>>;

/** Creates an HTTP server that responds with problem details even to requests that Node's parser rejects. */
export function createHttpServer(
  handle: RequestListener,
  log: Pick<Logger, 'info'>,
  proxies: TrustedProxies = trustProxies([]),
  limits: HttpLimits = httpLimits,
) {
  const exchanges: Exchanges = new Map();
  const refusing = { log, proxies, limits };
  const admit = admitConnections(limits, proxies, exchanges);
  let isStopping = false;
  const server = createServer(
    {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersMs,
      requestTimeout: limits.requestMs,
      connectionsCheckingInterval: limits.checkMs,
      // Announced in every response. A trusted connection stays open for longer, which is safe.
      keepAliveTimeout: limits.strangerIdleMs,
      // Checked by refusalOfHead, so that the response has a body that says why.
      requireHostHeader: false,
    },
    (request, response) => {
      track(exchanges, response, limits, () => isStopping);
      const refusal = refusalOfHead(request, limits);
      if (refusal === undefined) handle(request, response);
      else answer(response, refusal, refusing);
    },
  );
  // Node must read all headers, so that they can be counted here.
  server.maxHeadersCount = 0;
  server.maxConnections = limits.connections;
  // No limit, because requests pipelined after the last one would be dropped. Deployments spread connections
  // well enough.
  server.maxRequestsPerSocket = 0;
  server.on('connection', (socket) => {
    exchanges.set(socket, new Set());
    admit(socket);
    socket.once('close', () => {
      // Node closes only the response that is being sent. Those queued behind it would never close.
      for (const response of exchanges.get(socket) ?? []) {
        if (response.socket === null) response.emit('close');
      }
      exchanges.delete(socket);
    });
  });
  const cut = [exchanges, new WeakMap<ServerResponse, number>(), limits.answerMs] as const;
  const cutting = setInterval(cutUnread, limits.checkMs, ...cut).unref();
  server.once('close', () => clearInterval(cutting));
  server.on('checkExpectation', (_request, response: ServerResponse) => {
    answer(response, refuse('expectation_unsupported', { expected: '100-continue' }), refusing);
  });
  server.on('connect', (_request, socket) => {
    end(socket, refuse('route_not_found', { expected: 'no tunnel' }), refusing);
  });
  server.on('clientError', refuseUnreadable(exchanges, refusing));
  return {
    server,
    isStopping: () => isStopping,
    /**
     * Announces the stop and accepts requests for another `noticeMs`. Then accepts no connections, responds
     * to every request received so far, even one still being read, and closes idle connections, all within
     * `stopMs`.
     */
    stop: async (noticeMs: number): Promise<void> => {
      isStopping = true;
      for (const responses of exchanges.values()) closeAfter([...responses].at(-1));
      await delay(noticeMs);
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      const limit = setTimeout(() => server.closeAllConnections(), limits.stopMs);
      await closed;
      clearTimeout(limit);
    },
  };
}

/** Closes connections whose next response was written but was not read in time. */
function cutUnread(exchanges: Exchanges, written: WeakMap<ServerResponse, number>, ms: number) {
  const now = performance.now();
  for (const [socket, [response]] of exchanges) {
    if (response?.writableEnded !== true) continue;
    const since = written.get(response) ?? now;
    written.set(response, since);
    if (now - since > ms) socket.destroy();
  }
}

function track(
  exchanges: Exchanges,
  response: ServerResponse,
  limits: HttpLimits,
  isStopping: () => boolean,
): void {
  const { socket } = response.req;
  const open = exchanges.get(socket);
  open?.add(response);
  if (isStopping()) closeAfter(response);
  response.once('close', () => {
    open?.delete(response);
    if (open?.size === 0 && trusted.has(socket)) socket.setTimeout(limits.idleMs);
    // The response had begun before it could announce that the connection closes.
    if (isStopping() && open?.size === 0) socket.end();
  });
}

/** Tells the client that the connection closes after this response, and makes Node close it. */
function closeAfter(response: ServerResponse | undefined): void {
  if (response?.headersSent === false) response.setHeader('Connection', 'close');
}

/** Headers that may be sent only once: if there were two, a proxy in between might use the other one. */
const single = ['host', 'authorization', 'content-type', 'content-encoding'];

function refusalOfHead(request: IncomingMessage, limits: HttpLimits): Refusal | undefined {
  const { headers, rawHeaders, httpVersion, method, url = '' } = request;
  // The code that parses the path throws on some other forms, before it can respond.
  if (!/^\/[^#]*$/.test(url) && !(method === 'OPTIONS' && url === '*')) {
    return refuse('request_malformed', { expected: 'a path that begins with / and has no #' });
  }
  if (rawHeaders.length > 2 * limits.headers) return tooManyHeaders(limits);
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  const twice = single.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
  if (twice !== undefined) return refuse('header_invalid', { param: twice, expected: 'sent once' });
  // RFC 9112, 3.2.
  if (httpVersion === '1.1' && headers.host === undefined) {
    return refuse('header_invalid', { param: 'Host', expected: 'the name of this host' });
  }
  return undefined;
}

function tooManyHeaders({ headers, headerBytes }: HttpLimits): Refusal {
  const expected = `at most ${headers} headers, of ${headerBytes} bytes together`;
  return refuse('headers_too_large', { expected });
}

/**
 * Refuses a request that the parser cannot read, or not in time, on the bare connection. Then closes it,
 * because it is unknown where the next request would begin. Earlier requests are answered first, in order.
 */
function refuseUnreadable(exchanges: Exchanges, refusing: Refusing) {
  // The parser fails again on every byte that follows.
  const refused = new WeakSet<Duplex>();
  return (error: NodeJS.ErrnoException, socket: Duplex): void => {
    if (refused.has(socket)) return;
    refused.add(socket);
    const refusal = refusalOfParser(error, refusing.limits);
    const hasReceivedData = 'bytesRead' in socket && socket.bytesRead !== 0;
    if (refusal === undefined || !hasReceivedData || !socket.writable) {
      socket.destroy();
      return;
    }
    const open = [...(exchanges.get(socket) ?? [])];
    const broken = open.find(({ req }) => !req.complete);
    const earlier = open.filter((response) => response !== broken);
    const answered = earlier.map(
      (response) => new Promise<void>((resolve) => response.once('close', resolve)),
    );
    void Promise.all(answered).then(() => {
      if (broken?.headersSent) socket.destroy();
      else end(socket, refusal, refusing);
    });
  };
}

/** Translates the parser's error codes. Returns undefined if the client has disconnected. */
function refusalOfParser(error: NodeJS.ErrnoException, limits: HttpLimits): Refusal | undefined {
  const { code = '' } = error;
  if (code === 'HPE_HEADER_OVERFLOW') return tooManyHeaders(limits);
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    const { headersMs, requestMs } = limits;
    const expected = `headers within ${headersMs / 1000} s, and the whole request within ${requestMs / 1000} s`;
    return refuse('request_timeout', { expected });
  }
  if (!code.startsWith('HPE_')) return undefined;
  // The parser's own message, which is one of a fixed set.
  const reason = 'reason' in error && typeof error.reason === 'string' ? error.reason : code;
  const hint = `The request cannot be read: ${reason}. The connection closes.`;
  return refuse('request_malformed', { expected: 'a request as RFC 9112 defines it', hint });
}

/** Renders the refusal as a response, and logs it. */
function rendered(refusal: Refusal, log: Refusing['log'], address: string) {
  const requestId = newId('request');
  const problem = problemOf([refusal], requestId);
  const { status, code } = problem;
  log.info({ request: requestId, address, status, code }, 'refused before it was read');
  const body = JSON.stringify(problem);
  const headers = {
    ...everyAnswerHeaders(requestId),
    Date: new Date().toUTCString(),
    'Content-Type': 'application/problem+json',
    'Content-Length': `${Buffer.byteLength(body)}`,
    Connection: 'close',
  };
  return { status, headers, body };
}

function answer(response: ServerResponse, refusal: Refusal, { log, proxies }: Refusing): void {
  const { status, headers, body } = rendered(refusal, log, proxies.clientOf(response.req));
  response.writeHead(status, headers).end(body);
}

function end(socket: Duplex, refusal: Refusal, { log, proxies, limits }: Refusing): void {
  if (!socket.writable || !(socket instanceof Socket)) return;
  const address = proxies.clientOf({ socket, headers: {} });
  const { status, headers, body } = rendered(refusal, log, address);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`);
  // If closed at once, data that the client still sends would reset the connection before it has read this.
  const timer = setTimeout(() => socket.destroy(), limits.lingerMs);
  socket.once('close', () => clearTimeout(timer)).on('error', () => socket.destroy());
}
