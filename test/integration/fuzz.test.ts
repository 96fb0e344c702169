import { randomInt } from 'node:crypto';
import { connect } from 'node:net';
import { Pool } from 'undici';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { sendSignal } from '../../sandbox/stack/process.js';
import { routes } from '../../src/api/app.js';
import { eventually } from '../assertions/eventually.js';
import { createClient } from '../fixtures/client.js';
import { type ApiProcess, startApiProcess } from '../servers/apiProcess.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';
import { chanceOf, framed, type HostileRequest, hostileRequest } from './hostile.js';

/** Logged by the process after a garbage collection, as its metrics sometimes miss one. */
const collected = 'collected what nobody holds';
/** Makes the process collect garbage on a signal, so that the memory left is really in use. */
const collecting = `data:text/javascript,process.on("SIGUSR2",()=>{globalThis.gc();console.log("${collected}")})`;

let data: TestDatabase;
let api: ApiProcess;
let apiKey: string;

beforeAll(async () => {
  data = await createTestDatabase();
  ({ apiKey } = await createTestAccount(data.database));
  api = await startApiProcess(data.urls.api, {}, ['--expose-gc', '--import', collecting]);
});
afterAll(async () => {
  await api.part.stop();
  await data.drop();
});

const requests = 20_000;
/** Requests with invalid framing, each on a separate raw connection. */
const bare = 5_000;
/** Concurrent requests: more than the database has connections. */
const lanes = 24;
/** Maximum number of connection resets on a busy machine; on an idle one there are none. */
const mostResets = 20;
/** A request that takes longer has hung: all of them together take a minute. */
const patienceMs = 15_000;

it(`${requests} malformed requests are refused, and memory does not grow`, {
  timeout: 240_000,
}, async () => {
  const seed = Number.parseInt(process.env['FUZZ_SEED'] ?? `${randomInt(2 ** 31)}`, 10);
  process.stdout.write(`FUZZ_SEED=${seed}\n`);
  const chance = chanceOf(seed);
  const [first, ...rest] = routes;
  if (first === undefined) throw new Error('There are no routes.');
  const make = () => hostileRequest(chance, [first, ...rest], apiKey);
  const pool = new Pool(api.url, {
    connections: lanes,
    headersTimeout: patienceMs,
    bodyTimeout: patienceMs,
  });
  const client = createClient(api.url, apiKey);
  const statuses = new Map<number, number>();
  const note = (status: number) => {
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  };

  const carry = async (count: number, send: () => Promise<void>) => {
    let left = count;
    const lane = async () => {
      while (left > 0) {
        left -= 1;
        // Valid requests are served meanwhile.
        if (left % 200 === 0) await serves(client);
        await send();
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
  };
  let resets = 0;
  const untilAnswered = async (request: HostileRequest): Promise<number> => {
    const again = (error: Error & { readonly code?: string }) => {
      if (error.code !== 'ECONNRESET' || resets >= mostResets) throw error;
      resets += 1;
      return untilAnswered(request);
    };
    return send(pool, request).catch(again);
  };
  const sendWhole = async () => note(await untilAnswered(make()));
  const sendBare = async () => {
    for (const status of await sendBytes(framed(chance, make()))) note(status);
  };
  await carry(1_000, sendWhole);
  await carry(200, sendBare);
  const before = await memoryOf();
  await carry(requests - bare, sendWhole);
  await carry(bare, sendBare);
  const after = await memoryOf();
  await pool.close();

  const report = JSON.stringify({
    statuses: [...statuses].sort(([a], [b]) => a - b),
    before,
    after,
  });
  process.stdout.write(`${report}\n`);
  expect([...statuses.keys()].filter((status) => status >= 500)).toEqual([]);
  // Every kind of refusal must occur; otherwise the generated requests are too tame.
  for (const status of [400, 401, 404, 405, 413, 415, 417, 422, 431]) {
    expect(statuses.get(status) ?? 0, `${status}`).toBeGreaterThan(0);
  }
  // A refusal before the end of the body closes the connection, and rarely its reset overtakes the answer.
  expect(resets).toBeLessThan(mostResets);
  // One kilobyte leaked per request would add up to 20 MB.
  expect(after.heapBytes - before.heapBytes).toBeLessThan(10_000_000);
  expect(after.residentBytes - before.residentBytes).toBeLessThan(150_000_000);
  await serves(client);
  expect(api.lines.filter((line) => line.includes('"level":"error"'))).toEqual([]);
});

/** Verifies that a valid request is answered as usual. */
async function serves(client: ReturnType<typeof createClient>): Promise<void> {
  const json = { source_currency: 'USD', destination_currency: 'EUR', amount: 5_000 };
  const quote = await client('POST /v1/quotes', { json });
  expect(quote).toMatchObject({ status: 201, body: { receive_amount: expect.any(String) } });
}

/** Sends a correctly framed request and checks the form of the answer. */
async function send(pool: Pool, request: HostileRequest): Promise<number> {
  const { method, path, headers, body } = request;
  const target = path === '*' ? '/*' : path;
  const {
    statusCode,
    headers: answerHeaders,
    body: answer,
  } = await pool.request({
    method,
    path: target.replaceAll(' ', '%20'),
    headers: headers.flatMap((pair) => [...pair]),
    body: body.length === 0 ? null : body,
  });
  const text = await answer.text();
  const shown = `${method} ${path.slice(0, 200)}: ${statusCode} ${text.slice(0, 300)}`;
  expect(statusCode, shown).toBeLessThan(500);
  expect(answerHeaders['request-id'], shown).toMatch(/^req_/);
  if (statusCode >= 400) {
    expect(answerHeaders['content-type'], shown).toBe('application/problem+json');
    expect(text, shown).not.toMatch(/node_modules|node:internal|\bselect\b.*\bfrom\b/);
  }
  return statusCode;
}

/** Sends bytes and returns the statuses received until the other side has closed. */
async function sendBytes(bytes: Buffer): Promise<readonly number[]> {
  const { hostname, port } = new URL(api.url);
  const socket = connect(Number.parseInt(port, 10), hostname);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  // The connection may also end with a reset; only that it ends matters.
  socket.on('error', () => undefined);
  // Ends the stream, so that the API knows that the rest of a partial request never follows.
  socket.end(bytes);
  let isLate = false;
  const limit = setTimeout(() => {
    isLate = true;
    socket.destroy();
  }, patienceMs);
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
  clearTimeout(limit);
  if (isLate) {
    throw new Error(
      `The connection stays open after ${JSON.stringify(bytes.toString('latin1').slice(0, 500))}`,
    );
  }
  const text = Buffer.concat(chunks).toString('latin1');
  return [...text.matchAll(/(?:^|\})HTTP\/1\.1 (\d{3}) /g)].map(([, status]) =>
    Number.parseInt(status ?? '', 10),
  );
}

/** The API's memory after a garbage collection, by its own metrics. */
async function memoryOf() {
  const collections = () => api.lines.filter((line) => line === collected).length;
  const before = collections();
  sendSignal(api.part.pid, 'SIGUSR2');
  await eventually('a garbage collection', 10_000, () => collections() > before || undefined);
  const text = await (await fetch(`${api.metricsUrl}/metrics`)).text();
  const metric = (name: string) =>
    Number.parseFloat(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, 'm').exec(text)?.[1] ?? 'NaN');
  return {
    heapBytes: metric('nodejs_heap_size_used_bytes'),
    residentBytes: metric('process_resident_memory_bytes'),
  };
}
