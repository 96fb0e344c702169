import { Agent, createServer, request as httpRequest } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

/** A process that serves requests, and the URL of its readiness check. */
export type Backend = { readonly url: string; readonly readyUrl: string };

export type LoadBalancer = {
  readonly url: string;
  /** Resolves when the backend is ready. It is checked from then on, and gets no requests while not ready. */
  readonly add: (backend: Backend) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Pause between readiness checks. Some seconds are usual; it must be well below a stop's notice period. */
const checkMs = 250;

/**
 * Spreads requests over the backends that report ready, on kept-alive connections. It never retries a
 * request: if a backend drops one, the response is 502.
 */
export async function startLoadBalancer(): Promise<LoadBalancer> {
  const agent = new Agent({ keepAlive: true });
  const ready = new Map<string, Backend>();
  const stopped = new AbortController();
  const checks: Promise<void>[] = [];
  let turn = 0;
  const server = createServer((request, response) => {
    const backends = [...ready.values()];
    turn += 1;
    const backend = backends[turn % backends.length];
    if (backend === undefined) {
      response.writeHead(502).end('{"code":"no_backend"}');
      return;
    }
    const { method, headers, url = '/' } = request;
    const passed = httpRequest(backend.url + url, { method, headers, agent }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', (error) => {
      if (response.headersSent) response.destroy();
      else response.writeHead(502).end(JSON.stringify({ code: error.message }));
    });
    request.pipe(passed);
  });
  const port = await listenOnAnyPort(server);

  const check = async (backend: Backend) => {
    const isReady = await fetch(backend.readyUrl).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isReady) ready.set(backend.url, backend);
    else ready.delete(backend.url);
  };
  const watch = async (backend: Backend) => {
    while (!stopped.signal.aborted) {
      await delay(checkMs, undefined, { signal: stopped.signal }).catch(() => undefined);
      await check(backend);
    }
  };
  return {
    url: `http://127.0.0.1:${port}`,
    add: async (backend) => {
      // The process has reported ready already; the limit of one minute is for a busy machine.
      for (let tries = 0; !ready.has(backend.url); tries += 1) {
        if (tries > 240) throw new Error(`${backend.url} is not ready.`);
        if (tries > 0) await delay(checkMs);
        await check(backend);
      }
      checks.push(watch(backend));
    },
    close: async () => {
      stopped.abort();
      await Promise.all(checks);
      agent.destroy();
      server.closeAllConnections();
      server.close();
    },
  };
}
