import { createServer } from 'node:http';
import { z } from 'zod';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

/** A span as a process exports it: OTLP over HTTP, in JSON. */
const spanForm = z.looseObject({
  traceId: z.string(),
  spanId: z.string(),
  parentSpanId: z.string().optional(),
  name: z.string(),
});
const exportForm = z.object({
  resourceSpans: z.array(z.object({ scopeSpans: z.array(z.object({ spans: z.array(spanForm) })) })),
});
export type CollectedSpan = z.infer<typeof spanForm>;

/** An OpenTelemetry collector that stores everything it receives. */
export async function startCollector() {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      bodies.push(Buffer.concat(chunks).toString('utf8'));
      response.writeHead(request.url === '/v1/traces' ? 200 : 404).end('{}');
    });
  });
  const port = await listenOnAnyPort(server);
  return {
    url: `http://127.0.0.1:${port}`,
    /** The raw bodies of all requests. */
    bodies,
    spans: (): readonly CollectedSpan[] =>
      bodies.flatMap((body) =>
        exportForm
          .parse(JSON.parse(body))
          .resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)),
      ),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export type Collector = Awaited<ReturnType<typeof startCollector>>;
