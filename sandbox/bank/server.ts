import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { z } from 'zod';
import { type Bank, createBank } from './bank.js';
import { transferKey, transferOrder } from './facts.js';
import { openJournal } from './journal.js';

export type BankSettings = {
  readonly host: string;
  /** 0 picks a free port. */
  readonly port: number;
  readonly journalPath: string;
  readonly apiToken: string;
  readonly callbackUrl: string;
  readonly callbackSecret: string;
  readonly keyRetentionMs: number;
  readonly log: (message: string) => void;
};

/** Maximum body size: 500 transfers of at most 1,000 characters of four bytes each, doubled. */
const bodyLimitBytes = 4 * 1024 * 1024;
/** Timeout for receiving a request: a local client sends 4 MiB in well under a second. */
const receiveLimitMs = 10_000;
/** How long a simulated timeout stays silent: longer than any of our clients waits. */
const silenceLimitMs = 30_000;
/** Grace period for requests in flight when stopping; each takes a few milliseconds. */
const stopLimitMs = 1_000;
/** Maximum number of transfers or keys in one request, the same as the connector's `RailLimits.bulkSize`. */
const bulkMaximum = 500;

type Answer = { readonly status: number; readonly body: object } | 'silence';
type Route = (request: IncomingMessage, query: URLSearchParams) => Promise<Answer>;

/**
 * Opens the journal and serves the bank. Resolves when the server is listening.
 *
 * @throws Error if the journal cannot be parsed or the port is taken
 */
export async function startBank(
  settings: BankSettings,
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const bank = createBank({ ...settings, journal: await openJournal(settings.journalPath) });
  const silent = new Set<ServerResponse>();
  const answer = createRouter(routesOf(bank), settings.apiToken);
  const limits = { requestTimeout: receiveLimitMs, headersTimeout: receiveLimitMs };
  const server = createServer(limits, (request, response) => {
    answer(request).then(
      (given) => {
        if (given === 'silence') return staySilent(response, silent);
        // While stopping, a keep-alive connection would only cause a delay.
        if (!server.listening || given.status === 413) response.setHeader('connection', 'close');
        reply(response, given);
      },
      (error: unknown) => {
        settings.log(`${request.method} ${request.url}: ${String(error)}`);
        reply(response, problem(500, 'The bank could not process this; retry with the same key.'));
      },
    );
  });
  try {
    const url = await listen(server, settings);
    return { url, close: () => closeAll(server, silent, bank) };
  } catch (error) {
    await bank.close();
    throw error;
  }
}

async function listen(server: Server, { host, port }: BankSettings): Promise<string> {
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('The bank has no port.');
  return `http://${host.includes(':') ? `[${host}]` : host}:${address.port}`;
}

async function closeAll(server: Server, silent: Set<ServerResponse>, bank: Bank): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  for (const response of silent) response.destroy();
  const timer = setTimeout(() => server.closeAllConnections(), stopLimitMs);
  await closed;
  clearTimeout(timer);
  await bank.close();
}

function routesOf(bank: Bank): ReadonlyMap<string, Route> {
  return new Map<string, Route>([
    [
      'POST /transfers',
      withBody(transferOrder, async (order) => {
        const [answer] = await bank.submit([order]);
        return answer === undefined || answer.outcome === 'unknown' ? 'silence' : ok(answer);
      }),
    ],
    [
      'POST /transfers/bulk',
      withBody(z.object({ transfers: listOf(transferOrder) }, anObject), async ({ transfers }) =>
        ok({ results: await bank.submit(transfers) }),
      ),
    ],
    [
      'POST /transfers/lookup',
      withBody(z.object({ keys: listOf(transferKey) }, anObject), async ({ keys }) =>
        ok({ results: await bank.lookup(keys) }),
      ),
    ],
    [
      'POST /transfers/void',
      withBody(z.object({ key: transferKey }, anObject), async ({ key }) =>
        ok(await bank.voidKey(key)),
      ),
    ],
    [
      'GET /statement',
      async (_request, query) => {
        const date = z.iso.date().safeParse(query.get('date'));
        if (!date.success) return problem(400, 'date: expected YYYY-MM-DD, a day in UTC');
        return ok(await bank.statement(date.data));
      },
    ],
  ]);
}

const anObject = { error: 'expected an object' };

const listOf = <T extends z.ZodType>(item: T) =>
  z
    .array(item, { error: `expected a list of 1 to ${bulkMaximum}` })
    .min(1, `expected a list of 1 to ${bulkMaximum}`)
    .max(bulkMaximum, `expected a list of 1 to ${bulkMaximum}`);

function createRouter(routes: ReadonlyMap<string, Route>, apiToken: string) {
  const expected = digest(`Bearer ${apiToken}`);
  return async (request: IncomingMessage): Promise<Answer> => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://bank.invalid');
    const name = `${request.method} ${pathname}`;
    if (name === 'GET /health') return ok({ status: 'ok' });
    // Digests have the same length, so the comparison does not even reveal the token's length.
    if (!timingSafeEqual(digest(request.headers.authorization ?? ''), expected)) {
      return problem(401, 'authorization: expected Bearer and the token of this bank');
    }
    const route = routes.get(name);
    if (route !== undefined) return route(request, searchParams);
    return problem(404, `There is no ${name} here. Available: ${[...routes.keys()].join(', ')}.`);
  };
}

const digest = (text: string) => createHash('sha256').update(text).digest();

/** Creates a route that validates its JSON body; an invalid one is answered with 400 naming the field. */
function withBody<T>(schema: z.ZodType<T>, handle: (body: T) => Promise<Answer>): Route {
  return async (request) => {
    const text = await readBody(request);
    if (text === undefined) return problem(413, `body: expected at most ${bodyLimitBytes} bytes`);
    const json = parseJson(text);
    if (json === undefined) return problem(400, 'body: expected JSON');
    const result = schema.safeParse(json.value);
    if (result.success) return handle(result.data);
    const [issue] = result.error.issues;
    return problem(400, `${issue?.path.join('.') || 'body'}: ${issue?.message}`);
  };
}

/** Returns the body, or undefined if it exceeds the limit. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const parts: Buffer[] = [];
  let length = 0;
  // Past the limit the request stays open, because otherwise the refusal could not be sent.
  for await (const part of request.iterator({ destroyOnReturn: false })) {
    const bytes: Buffer = part;
    length += bytes.length;
    if (length > bodyLimitBytes) return undefined;
    parts.push(bytes);
  }
  return Buffer.concat(parts).toString('utf8');
}

function parseJson(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

const ok = (body: object) => ({ status: 200, body });
const problem = (status: number, message: string) => ({ status, body: { message } });

function reply(response: ServerResponse, { status, body }: Exclude<Answer, 'silence'>): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
  });
  response.end(JSON.stringify(body));
}

/** Sends no answer until the client disconnects or every client must have timed out. */
function staySilent(response: ServerResponse, silent: Set<ServerResponse>): void {
  if (response.destroyed) return;
  const timer = setTimeout(() => response.destroy(), silenceLimitMs);
  silent.add(response);
  response.once('close', () => {
    clearTimeout(timer);
    silent.delete(response);
  });
}
