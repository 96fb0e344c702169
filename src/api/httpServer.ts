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
  /** An integrator's own headers are under 1 KiB; proxies and traces add a few more. */
  headerBytes: 16 * 1024,
  /** Node would drop what is above its own count in silence, and an Idempotency-Key with it. */
  headers: 100,
  /** With all their headers at once they hold 80 MB; more need another process anyway. */
  connections: 5_000,
  /** Of one address, and without a key: a few times what a customer has in flight. */
  anonymous: 250,
  /** Longer than the usual proxy keeps its side open (60 s), so that it is the one to close. */
  idleMs: 75_000,
  /** A client that has shown no key sends its next request at once, or has no reason to stay. */
  strangerIdleMs: 5_000,
  /** Who sends nothing, or headers a byte at a time, is cut off; 16 KiB take no second. */
  headersMs: 5_000,
  /** The longest body is 8 MiB, which a line of 2.5 Mbit/s transfers in this time. */
  requestMs: 30_000,
  /** The longest answer is about 1 MB. Who reads it slower, or not at all, fills the memory. */
  answerMs: 30_000,
  /** How often these are looked at; Node's own 30 s would let a slow client double them. */
  checkMs: 1_000,
  /** How long a refused client may still be sending, so that it reads why before it is cut off. */
  lingerMs: 1_000,
  /** A deploy does not wait for callers who asked to be kept waiting: they may ask again. */
  stopMs: 8_000,
} as const;
type HttpLimits = { readonly [Name in keyof typeof httpLimits]: number };

/** What it takes to refuse a request, and to log whose it was. */
type Refusing = {
  readonly log: Pick<Logger, 'info'>;
  readonly proxies: TrustedProxies;
  readonly limits: HttpLimits;
};

/** Responses that are not sent to their end, by connection, in the order of their requests. */
type Exchanges = Map<Duplex, Set<ServerResponse>>;

/** An HTTP server that answers as problem details also what its parser refuses. */
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
      // What each answer announces. That a customer's stays open for longer does no harm.
      keepAliveTimeout: limits.strangerIdleMs,
      // Refused by us, with a body that says why.
      requireHostHeader: false,
    },
    (request, response) => {
      track(exchanges, response, limits, () => isStopping);
      const refusal = refusalOfHead(request, limits);
      if (refusal === undefined) handle(request, response);
      else answer(response, refusal, refusing);
    },
  );
  // All of them are read, so that they can be counted.
  server.maxHeadersCount = 0;
  server.maxConnections = limits.connections;
  // What is pipelined after the last would be dropped; a deploy spreads connections well enough.
  server.maxRequestsPerSocket = 0;
  server.on('connection', (socket) => {
    exchanges.set(socket, new Set());
    admit(socket);
    socket.once('close', () => {
      // Node closes the response whose turn it is; those behind it would wait for ever to be read.
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
     * Says that it stops, and takes requests for `noticeMs` more. Then it takes no connection,
     * answers what it was sent, also what it is still reading, and closes what is idle; all of
     * it within `stopMs`.
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

/** Ends connections whose next answer was written and is not read in time. */
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
    // Its answer had begun before it could say that the connection closes.
    if (isStopping() && open?.size === 0) socket.end();
  });
}

/** Tells the client that the connection ends with this answer, and ends it. */
function closeAfter(response: ServerResponse | undefined): void {
  if (response?.headersSent === false) response.setHeader('Connection', 'close');
}

/** Headers that have one value: of two, a proxy in between might take the other. */
const single = ['host', 'authorization', 'content-type', 'content-encoding'];

function refusalOfHead(request: IncomingMessage, limits: HttpLimits): Refusal | undefined {
  const { headers, rawHeaders, httpVersion, method, url = '' } = request;
  // What parses the path throws on some of the others, and before an answer can be made.
  if (!/^\/[^#]*$/.test(url) && !(method === 'OPTIONS' && url === '*')) {
    return refuse('request_malformed', { expected: 'a path from the first / on, without #' });
  }
  if (rawHeaders.length > 2 * limits.headers) return tooManyHeaders(limits);
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  const twice = single.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
  if (twice !== undefined) {
    return refuse('header_invalid', { param: twice, expected: 'sent once' });
  }
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
 * What the parser cannot read, or not in time, is refused on the bare connection, which then
 * closes: it is unknown where the next request would begin. Requests before it are answered
 * first, in their order.
 */
function refuseUnreadable(exchanges: Exchanges, refusing: Refusing) {
  // The parser goes on failing at every byte that follows.
  const refused = new WeakSet<Duplex>();
  return (error: NodeJS.ErrnoException, socket: Duplex): void => {
    if (refused.has(socket)) return;
    refused.add(socket);
    const refusal = refusalOfParser(error, refusing.limits);
    const isHeard = 'bytesRead' in socket && socket.bytesRead !== 0;
    if (refusal === undefined || !isHeard || !socket.writable) {
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

/** What the parser's codes mean; undefined when the client is gone. */
function refusalOfParser(error: NodeJS.ErrnoException, limits: HttpLimits): Refusal | undefined {
  const { code = '' } = error;
  if (code === 'HPE_HEADER_OVERFLOW') return tooManyHeaders(limits);
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    const { headersMs, requestMs } = limits;
    const expected = `headers within ${headersMs / 1000} s, and all of it within ${requestMs / 1000} s`;
    return refuse('request_timeout', { expected });
  }
  if (!code.startsWith('HPE_')) return undefined;
  // The parser's own words, of which there is a fixed set.
  const reason = 'reason' in error && typeof error.reason === 'string' ? error.reason : code;
  const hint = `The request cannot be read: ${reason}. The connection closes.`;
  return refuse('request_malformed', { expected: 'a request as RFC 9112 has it', hint });
}

/** The refusal as an answer, and its line in the log. */
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
  // Closed at once, what it still sends would reset the connection before it has read this.
  const timer = setTimeout(() => socket.destroy(), limits.lingerMs);
  socket.once('close', () => clearTimeout(timer)).on('error', () => socket.destroy());
}
