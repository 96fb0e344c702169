import { z } from 'zod';
import { connectDatabase } from '../../src/db/client.js';
import { sumPostings } from '../../src/db/ledger.js';
import { interruption } from '../interruption.js';
import { type Stack, type StackOptions, startStack } from '../localStack.js';
import { sendBatch } from './batch.js';
import { type Call, caller } from './caller.js';
import { line, seconds } from './line.js';
import { type Receiver, startReceiver } from './receiver.js';

export type DemoOptions = Omit<StackOptions, 'onProgress'> & {
  /** How many payouts to send as one batch; undefined sends one payout by itself. */
  readonly batch: number | undefined;
};

/** Timeout of a settlement, which usually takes about a second. */
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
const created = z.object({ id: z.string() });

/** The exit code that shells use for SIGINT: 128 plus the signal's number. */
const interruptedCode = 130;

/** Runs the main use case once, as an integrator would, and shows what happened. */
export async function demo({ batch, ...options }: DemoOptions): Promise<number> {
  console.log('Starting PostgreSQL, Temporal, the sandbox bank, the workers and the API …');
  const startedMs = performance.now();
  const interrupted = interruption();
  const stack = await startStack({ ...options, onProgress: (line) => console.log(`  ${line}`) });
  console.log(`Everything is ready after ${seconds(startedMs)}.\n`);
  const broken = stack.broken.then(({ part, exit }) => {
    throw new Error([`${part} has exited. Its last output:`, ...exit.lastWords].join('\n  '));
  });
  const receiver = await startReceiver();
  try {
    const end = await Promise.race([perform(stack, receiver, batch), broken, interrupted]);
    if (end === 'interrupted') {
      console.error('Interrupted: stopping every part …');
      return interruptedCode;
    }
    await showLedger(stack.description.database_url);
    return 0;
  } finally {
    // From here the parts exit because we stop them, which is not a failure.
    broken.catch(() => undefined);
    receiver.close();
    await stack.stop();
  }
}

async function perform(
  { description }: Stack,
  receiver: Receiver,
  batch: number | undefined,
): Promise<void> {
  const call = caller(description.api_url, description.api_key);
  const events = batch === undefined ? ['payout.settled'] : ['payout.settled', 'batch.completed'];
  const endpoint = await call(
    'POST /v1/webhook_endpoints',
    created.extend({ secret: z.string() }),
    new URLSearchParams([
      ['url', receiver.url],
      ...events.map((event): [string, string] => ['events[]', event]),
    ]),
  );
  receiver.trust(endpoint.secret);
  const before = await call('GET /v1/balances', balancesShape);
  if (batch === undefined) await sendOnePayout(call, receiver);
  else await sendBatch(call, receiver, await storeBeneficiary(call), batch);
  await showBalances(call, before.data);
}

async function storeBeneficiary(call: Call): Promise<string> {
  const beneficiary = await call(
    'POST /v1/beneficiaries',
    created,
    new URLSearchParams({
      type: 'individual',
      name: 'Ada Lovelace',
      country: 'DE',
      currency: 'EUR',
      iban: 'DE89370400440532013000',
    }),
  );
  line('Beneficiary', beneficiary.id);
  return beneficiary.id;
}

async function sendOnePayout(call: Call, receiver: Receiver): Promise<void> {
  const startedMs = performance.now();
  const quote = await call(
    'POST /v1/quotes',
    quoteShape,
    new URLSearchParams({
      source_currency: 'USD',
      destination_currency: 'EUR',
      amount: '125000',
    }),
  );
  line('Quote', `${quote.id}: ${quote.source_amount} USD gives ${quote.receive_amount} EUR`);
  line('', `rate ${quote.rate}, fee ${quote.fee} USD, held until ${quote.expires_at}`);
  const beneficiary = await storeBeneficiary(call);
  const payout = await call(
    'POST /v1/payouts',
    payoutShape,
    new URLSearchParams({ quote: quote.id, beneficiary, reference: 'Invoice 17' }),
    // Unique per run, because an earlier demo may have used the same data directory.
    `demo-${quote.id}`,
  );
  line('Payout', `${payout.id}: ${payout.status} after ${seconds(startedMs)}`);
  const event = await receiver.next(({ data }) => data.id === payout.id, settleLimitMs);
  line('Webhook', `${event.id}: ${event.type} after ${seconds(startedMs)}, signature verified`);
  const settled = await call(`GET /v1/payouts/${payout.id}`, payoutShape);
  if (settled.status !== 'settled') throw new Error(`The payout is ${settled.status}.`);
  for (const change of settled.status_history) line('', `${change.at}  ${change.status}`);
  line('Received', `${settled.received} EUR at ${settled.rate}`);
}

async function showBalances(
  call: Call,
  before: z.infer<typeof balancesShape>['data'],
): Promise<void> {
  const after = await call('GET /v1/balances', balancesShape);
  for (const { currency, available } of before) {
    const now = after.data.find((balance) => balance.currency === currency);
    line('Balance', `${currency} ${available} before, ${now?.available} after, ${now?.held} held`);
  }
}

async function showLedger(url: string): Promise<void> {
  const database = connectDatabase({ url, poolSize: 1, applicationName: 'corridor-cli' });
  try {
    for (const { currency, sumMinor, postings } of await sumPostings(database)) {
      line('Ledger', `${currency}: the sum of its ${postings} postings is ${sumMinor}`);
      if (sumMinor !== 0n) throw new Error(`The ledger does not balance in ${currency}.`);
    }
  } finally {
    await database.end({ timeout: 5 });
  }
}
