import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { z } from 'zod';
import { connectDatabase } from '../db/client.js';
import { sumPostings } from '../db/ledger.js';
import { verifyWebhook } from '../webhooks/signature.js';
import { interruption } from './interruption.js';
import { type Stack, type StackOptions, startStack } from './stack.js';

/** Everything settles in about a second; a demonstration that takes longer has failed. */
const settleLimitMs = 30_000;

const quoteShape = z.object({
  id: z.string(),
  rate: z.number(),
  fee: z.number(),
  source_amount: z.string(),
  receive_amount: z.string(),
  expires_at: z.string(),
});
const payoutShape = z.object({
  id: z.string(),
  status: z.string(),
  rate: z.number().nullable(),
  received: z.string().nullable(),
  settled_at: z.string().nullable(),
  status_history: z.array(z.object({ status: z.string(), at: z.string() })),
});
const balancesShape = z.object({
  data: z.array(z.object({ currency: z.string(), available: z.string(), held: z.string() })),
});
const eventShape = z.object({
  id: z.string(),
  type: z.string(),
  data: z.object({ id: z.string() }),
});
const created = z.object({ id: z.string() });

/** What a shell reports of a command that SIGINT ended: 128 and the number of the signal. */
const interruptedCode = 130;

/** Runs the main job once, as an integrator would, and shows what happened. */
export async function demo(options: Omit<StackOptions, 'onProgress'>): Promise<number> {
  console.log('Starting PostgreSQL, Temporal, the sandbox bank, the workers and the API …');
  const startedMs = performance.now();
  const interrupted = interruption();
  const stack = await startStack({ ...options, onProgress: (line) => console.log(`  ${line}`) });
  console.log(`Everything answers after ${seconds(startedMs)}.\n`);
  const broken = stack.broken.then(({ part, exit }) => {
    throw new Error([`${part} has died. Its last words:`, ...exit.lastWords].join('\n  '));
  });
  const receiver = await startReceiver();
  try {
    const end = await Promise.race([sendOnePayout(stack, receiver), broken, interrupted]);
    if (end === 'interrupted') {
      console.error('Interrupted: stopping every part …');
      return interruptedCode;
    }
    await showLedger(stack.description.database_url);
    return 0;
  } finally {
    // The parts end now because we stop them; that is no news any more.
    broken.catch(() => undefined);
    receiver.close();
    await stack.stop();
  }
}

async function sendOnePayout({ description }: Stack, receiver: Receiver): Promise<void> {
  const call = caller(description.api_url, description.api_key);
  const endpoint = await call(
    'POST /v1/webhook_endpoints',
    created.extend({ secret: z.string() }),
    {
      url: receiver.url,
      'events[]': 'payout.settled',
    },
  );
  const before = await call('GET /v1/balances', balancesShape);
  const startedMs = performance.now();
  const quote = await call('POST /v1/quotes', quoteShape, {
    source_currency: 'USD',
    destination_currency: 'EUR',
    amount: '125000',
  });
  show('Quote', `${quote.id}: ${quote.source_amount} USD gives ${quote.receive_amount} EUR`);
  show('', `rate ${quote.rate}, fee ${quote.fee} USD, held until ${quote.expires_at}`);
  const beneficiary = await call('POST /v1/beneficiaries', created, {
    type: 'individual',
    name: 'Ada Lovelace',
    country: 'DE',
    currency: 'EUR',
    iban: 'DE89370400440532013000',
  });
  show('Beneficiary', beneficiary.id);
  const payout = await call(
    'POST /v1/payouts',
    payoutShape,
    { quote: quote.id, beneficiary: beneficiary.id, reference: 'Invoice 17' },
    // A demonstration on data of an earlier one is another request.
    `demo-${quote.id}`,
  );
  show('Payout', `${payout.id}: ${payout.status} after ${seconds(startedMs)}`);
  const webhook = await receiver.next(settleLimitMs);
  const arrivedAfter = seconds(startedMs);
  const nowSeconds = Math.floor(Date.now() / 1000);
  if (!verifyWebhook({ ...webhook, secrets: [endpoint.secret], nowSeconds })) {
    throw new Error('The signature of the webhook is not right.');
  }
  const event = eventShape.parse(JSON.parse(webhook.body));
  if (event.data.id !== payout.id) throw new Error('The webhook is about another payout.');
  show('Webhook', `${event.id}: ${event.type} after ${arrivedAfter}, signature verified`);
  await showEnd(call, payout.id, before.data);
}

type Call = ReturnType<typeof caller>;

async function showEnd(
  call: Call,
  payoutId: string,
  before: z.infer<typeof balancesShape>['data'],
): Promise<void> {
  const settled = await call(`GET /v1/payouts/${payoutId}`, payoutShape);
  if (settled.status !== 'settled') throw new Error(`The payout is ${settled.status}.`);
  for (const change of settled.status_history) show('', `${change.at}  ${change.status}`);
  show('Received', `${settled.received} EUR at ${settled.rate}`);
  const after = await call('GET /v1/balances', balancesShape);
  for (const { currency, available } of before) {
    const now = after.data.find((balance) => balance.currency === currency);
    show('Balance', `${currency} ${available} before, ${now?.available} after, ${now?.held} held`);
  }
}

async function showLedger(url: string): Promise<void> {
  const database = connectDatabase({ url, poolSize: 1, applicationName: 'corridor-cli' });
  try {
    for (const { currency, sumMinor, postings } of await sumPostings(database)) {
      show('Ledger', `${currency}: the sum of its ${postings} postings is ${sumMinor}`);
      if (sumMinor !== 0n) throw new Error(`The ledger does not balance in ${currency}.`);
    }
  } finally {
    await database.end({ timeout: 5 });
  }
}

/** Calls the API with form fields; an answer that is no success shows its problem. */
function caller(apiUrl: string, apiKey: string) {
  return async <T>(
    request: string,
    shape: z.ZodType<T>,
    fields?: Readonly<Record<string, string>>,
    idempotencyKey?: string,
  ): Promise<T> => {
    const [method = 'GET', path = '/'] = request.split(' ');
    const response = await fetch(apiUrl + path, {
      method,
      headers: {
        authorization: `Bearer ${apiKey}`,
        ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
      },
      ...(fields === undefined ? {} : { body: new URLSearchParams(fields) }),
      signal: AbortSignal.timeout(10_000),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${request} was answered ${response.status}: ${text}`);
    return shape.parse(JSON.parse(text));
  };
}

type Received = Pick<Parameters<typeof verifyWebhook>[0], 'headers' | 'body'>;

type Receiver = Awaited<ReturnType<typeof startReceiver>>;

/** An integrator's receiver: takes webhooks on a port of its own and answers 200. */
async function startReceiver() {
  const waiting: ((webhook: Received) => void)[] = [];
  const server = createServer((request, response) => {
    readText(request).then(
      (body) => {
        response.writeHead(200).end();
        const header = (name: string) => String(request.headers[name] ?? '');
        waiting.shift()?.({
          headers: {
            'webhook-id': header('webhook-id'),
            'webhook-timestamp': header('webhook-timestamp'),
            'webhook-signature': header('webhook-signature'),
          },
          body,
        });
      },
      () => response.destroy(),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}/webhooks`,
    next: (limitMs: number) =>
      new Promise<Received>((resolve, reject) => {
        const late = () => reject(new Error('No webhook came in time.'));
        // An interrupted demonstration does not wait for it.
        const timer = setTimeout(late, limitMs).unref();
        waiting.push((webhook) => {
          clearTimeout(timer);
          resolve(webhook);
        });
      }),
    close: () => server.close(),
  };
}

async function readText(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString('utf8');
}

function show(label: string, text: string): void {
  console.log(`${label.padEnd(12)} ${text}`);
}

function seconds(sinceMs: number): string {
  return `${((performance.now() - sinceMs) / 1000).toFixed(2)} s`;
}
