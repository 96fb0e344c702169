import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import { JSONToPayload, payloadToJSON } from '@temporalio/common/lib/proto-utils.js';
import { z } from 'zod';
import { type CodecConfig, readCodecConfig } from '../config.js';
import { runProcess } from '../process.js';
import { createLog, listen } from '../telemetry.js';
import { encryptingCodec } from '../temporal/encryption.js';

/** Of base64 in JSON: as much as Temporal takes in one message, which is 4 MB, and then some. */
const bodyBytes = 6 * 1024 * 1024;
const requestTimeoutMs = 10_000;

const bodyForm = z.object({
  payloads: z
    .array(z.object({ metadata: z.record(z.string(), z.base64()), data: z.base64().default('') }))
    .max(1_000),
});

type Answer = { readonly status: number; readonly body?: object };

/**
 * Decrypts payloads for the Temporal UI and the Temporal CLI, by their protocol of remote codecs. It
 * only decrypts: what people send to workflows needs no encryption to be read.
 */
function createCodecServer(config: CodecConfig) {
  const codec = encryptingCodec(config.TEMPORAL_ENCRYPTION_KEYS);
  const expected = Buffer.from(`Bearer ${config.CODEC_TOKEN}`);
  const isAllowed = ({ headers }: IncomingMessage) => {
    const given = Buffer.from(headers.authorization ?? '');
    return given.length === expected.length && timingSafeEqual(given, expected);
  };
  const answer = async (request: IncomingMessage): Promise<Answer> => {
    if (request.url === '/livez') return { status: 200 };
    if (request.method === 'OPTIONS') return { status: 204 };
    if (!isAllowed(request)) return problem(401, 'Authorization: expected Bearer and CODEC_TOKEN');
    if (request.method !== 'POST' || !request.url?.endsWith('/decode'))
      return problem(404, 'expected POST /decode');
    const text = await readBody(request);
    if (text === undefined) return problem(413, `expected at most ${bodyBytes} bytes`);
    const body = bodyForm.safeParse(jsonOf(text));
    if (!body.success) return problem(400, 'expected {"payloads": […]} with bytes as base64');
    try {
      const payloads = await codec.decode(body.data.payloads.map(JSONToPayload));
      return { status: 200, body: { payloads: payloads.map(payloadToJSON) } };
    } catch (error) {
      return problem(400, error instanceof Error ? error.message : String(error));
    }
  };
  // The UI is a page of another origin, whose browser asks for leave first.
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

async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > bodyBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

await runProcess(
  async () => {
    const config = readCodecConfig(process.env);
    const server = createCodecServer(config);
    const url = await listen(server, config.CODEC_HOST, config.CODEC_PORT);
    createLog({ part: 'codec', level: 'info' }).info({ ready: url }, 'the codec server is ready');
    return {
      broken: new Promise(() => undefined),
      stop: async () => {
        server.close();
        server.closeAllConnections();
      },
    };
  },
  () => createLog({ part: 'codec', level: 'info' }),
);
