import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { JSONToPayload, payloadToJSON } from '@temporalio/common/lib/proto-utils.js';
import { z } from 'zod';
import { type CodecConfig, readCodecConfig } from '../config.js';
import { createLog } from '../log.js';
import { listen } from '../metricsServer.js';
import { runProcess } from '../process.js';
import { encryptingCodec } from '../temporal/encryption.js';

/** Maximum size of a request body: Temporal's message limit of 4 MB as base64 in JSON, with some margin. */
const bodyBytes = 6 * 1024 * 1024;
const requestTimeoutMs = 10_000;

const bodyForm = z.object({
  payloads: z
    .array(z.object({ metadata: z.record(z.string(), z.base64()), data: z.base64().default('') }))
    .max(1_000),
});

type Answer = { readonly status: number; readonly body: object };

/**
 * Decrypts payloads for the Temporal UI and the Temporal CLI, using their remote codec protocol. It only
 * decrypts: workflows also read unencrypted payloads, so input sent from there needs no encryption.
 */
function createCodecServer(config: CodecConfig) {
  const codec = encryptingCodec(config.TEMPORAL_ENCRYPTION_KEYS);
  const expected = Buffer.from(`Bearer ${config.CODEC_TOKEN}`);
  const answer = async (request: IncomingMessage): Promise<Answer> => {
    const { headers, method, url } = request;
    if (url === '/livez' || method === 'OPTIONS') return { status: 200, body: {} };
    const given = Buffer.from(headers.authorization ?? '');
    if (given.length !== expected.length || !timingSafeEqual(given, expected))
      return problem(401, 'Authorization: expected Bearer and CODEC_TOKEN');
    if (method !== 'POST' || !url?.endsWith('/decode'))
      return problem(404, 'expected POST /decode');
    // Checking the header is enough: Node never reads more bytes than it declares.
    if (!(Number.parseInt(headers['content-length'] ?? '', 10) <= bodyBytes))
      return problem(413, `expected a Content-Length of at most ${bodyBytes}`);
    try {
      const { payloads } = bodyForm.parse(JSON.parse(await text(request)));
      const decrypted = await codec.decode(payloads.map(JSONToPayload));
      return { status: 200, body: { payloads: decrypted.map(payloadToJSON) } };
    } catch (error) {
      return problem(400, error instanceof Error ? error.message : String(error));
    }
  };
  // The UI has another origin, so browsers send a CORS preflight request first.
  const headers = {
    'access-control-allow-origin': config.CODEC_UI_ORIGIN,
    'access-control-allow-methods': 'POST',
    'access-control-allow-headers': 'authorization, content-type, x-namespace',
    'access-control-allow-credentials': 'true',
    'content-type': 'application/json',
    'cache-control': 'no-store',
  };
  return createServer({ requestTimeout: requestTimeoutMs }, (request, response) => {
    answer(request).then(
      ({ status, body }) => response.writeHead(status, headers).end(JSON.stringify(body)),
      () => response.destroy(),
    );
  });
}

const problem = (status: number, message: string): Answer => ({ status, body: { message } });

await runProcess('codec', async () => {
  const config = readCodecConfig(process.env);
  const server = createCodecServer(config);
  const url = await listen(server, config.CODEC_HOST, config.CODEC_PORT);
  createLog({ part: 'codec', level: 'info' }).info({ ready: url }, 'the codec server is ready');
  return {
    stop: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
});
