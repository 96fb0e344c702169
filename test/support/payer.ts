import { z } from 'zod';
import { exactlyOne } from '../../src/db/client.js';
import { findPayoutById, type PayoutRow } from '../../src/db/payouts.js';
import { wakePayout } from '../../src/temporal/wakePayout.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from './client.js';
import { createTestAccount } from './database.js';
import { eventually } from './eventually.js';
import { beneficiary } from './requestPayout.js';
import type { TestSystem } from './system.js';

/** An account with 1,000.00 USD of its own, so that what moves on it is one test's doing. */
export type Payer = {
  readonly client: ApiClient;
  readonly accountId: string;
  /** Asks for a payout of 100.00 USD to Germany with this remittance text. */
  readonly ask: (
    reference: string,
    options?: {
      readonly amount?: string;
      readonly idempotencyKey?: string;
      readonly headers?: Readonly<Record<string, string>>;
    },
  ) => Promise<ApiAnswer>;
  /** The same where nothing but 201 will do: the id. */
  readonly send: (reference: string) => Promise<string>;
  /** The account's balance in USD, in minor units. */
  readonly balance: () => Promise<{ readonly available: bigint; readonly held: bigint }>;
  /** The types of the payout's events, in their order. */
  readonly eventsOf: (payoutId: string) => Promise<readonly string[]>;
};

export async function openPayer(system: TestSystem): Promise<Payer> {
  const { account, apiKey } = await createTestAccount(system.database, {
    funds: { USD: 100_000n },
  });
  const client = createClient(system.apiUrl, apiKey);
  const stored = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const ask: Payer['ask'] = (reference, { amount = '10000', ...options } = {}) =>
    client('POST /v1/payouts', {
      form: { source_currency: 'USD', amount, beneficiary: stored, reference },
      ...options,
    });
  return {
    client,
    accountId: account.id,
    ask,
    send: async (reference) => {
      const answer = await ask(reference);
      if (answer.status === 201) return textOf(answer, 'id');
      throw new Error(`${reference}: answered ${answer.status} ${JSON.stringify(answer.body)}`);
    },
    balance: async () => {
      const { data } = balances.parse((await client('GET /v1/balances')).body);
      const { available, held } = exactlyOne(data.filter(({ currency }) => currency === 'USD')[0]);
      return { available: minorOf(available), held: minorOf(held) };
    },
    eventsOf: async (payoutId) => {
      const { data } = events.parse((await client('GET /v1/events?limit=100')).body);
      return data
        .filter((event) => event.data.id === payoutId)
        .sort((a, b) => a.sequence - b.sequence)
        .map(({ type }) => type);
    },
  };
}

const balances = z.object({
  data: z.array(z.object({ currency: z.string(), available: z.string(), held: z.string() })),
});
const events = z.object({
  data: z.array(
    z.object({ type: z.string(), sequence: z.number(), data: z.object({ id: z.string() }) }),
  ),
});

/** A decimal string of two digits in minor units. */
function minorOf(decimal: string): bigint {
  return BigInt(decimal.replace('.', ''));
}

/** The statuses that an answer's payout went through. */
export function historyOf(answer: ApiAnswer): readonly string[] {
  const history = z.array(z.object({ status: z.string() }));
  return history.parse(answer.body['status_history']).map(({ status }) => status);
}

/** The row of a payout that is there. */
export async function rowOf({ database }: TestSystem, id: string): Promise<PayoutRow> {
  return exactlyOne(await findPayoutById(database, id));
}

/** Has the payout's workflow look at the row again, and start if it does not run. */
export async function wake(system: TestSystem, id: string): Promise<void> {
  await wakePayout(system.temporal, await rowOf(system, id));
}

/** The row as soon as it waits for a person. */
export function untilParked(system: TestSystem, id: string): Promise<PayoutRow> {
  return eventually(`${id} is parked`, 20_000, async () => {
    const row = await rowOf(system, id);
    return row.attentionReason === null ? undefined : row;
  });
}

/** The row as soon as the call to the rail has begun. */
export function untilSubmitted(system: TestSystem, id: string): Promise<PayoutRow> {
  return eventually(`${id} is submitted`, 20_000, async () => {
    const row = await rowOf(system, id);
    return row.submitStartedAt === null ? undefined : row;
  });
}

/** What the bank's journal says of a payout, but for who has acknowledged what. */
export async function journalOf({ bank }: TestSystem, id: string): Promise<readonly string[]> {
  const lines = (await bank.journal()).filter(({ key }) => key === id);
  return lines.map(({ type }) => type).filter((type) => type !== 'acknowledged');
}
