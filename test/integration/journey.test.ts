import codes from 'currency-codes';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { corridorCurrencies } from '../../src/domain/corridor.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

describe('a payout that settles by callback', () => {
  let system: TestSystem;
  let receiver: Receiver;

  beforeAll(async () => {
    system = await startSystem();
    receiver = await startReceiver();
  });
  afterAll(async () => {
    await receiver.close();
    await system.stop();
  });

  it('costs at most 18 history events and 7 state transitions', async () => {
    const { client, temporal, database, bank } = system;
    const endpoint = await client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['payout.settled'] },
    });
    const quote = await client('POST /v1/quotes', {
      form: { source_currency: 'USD', destination_currency: 'EUR', amount: '125000' },
    });
    const beneficiary = await client('POST /v1/beneficiaries', {
      form: {
        type: 'individual',
        name: 'Ada Lovelace',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE89370400440532013000',
      },
    });
    const payout = await client('POST /v1/payouts', {
      form: { quote: textOf(quote, 'id'), beneficiary: textOf(beneficiary, 'id') },
    });
    expect(payout.status).toBe(201);
    expect(['processing', 'sent', 'settled']).toContain(payout.body['status']);
    const id = textOf(payout, 'id');

    const webhook = await receiver.next(({ body }) => body.includes(id));
    const verified = new Webhook(textOf(endpoint, 'secret')).verify(webhook.body, webhook.headers);
    expect(verified).toMatchObject({ type: 'payout.settled', data: { id, status: 'settled' } });

    const handle = temporal.workflow.getHandle(id);
    await expect(handle.result()).resolves.toBe('settled');
    const description = await handle.describe();
    expect(description.historyLength).toBeLessThanOrEqual(18);
    expect(Number(description.raw.workflowExecutionInfo?.stateTransitionCount)).toBeLessThanOrEqual(
      7,
    );

    const settled = await untilStatus(client, id, 'settled');
    expect(settled.body).toMatchObject({ received: quote.body['receive_amount'] });
    expect(await unbalancedCurrencies(database)).toEqual([]);
    const transfers = (await bank.journal()).filter((line) => line.type === 'transfer');
    expect(transfers.map((line) => line.key)).toEqual([id]);
  });

  it('is counted in the digits of ISO 4217 by the API and the ledger, in every currency', async () => {
    const { client, database, account } = system;
    const balances = z.object({
      data: z.array(z.object({ currency: z.string(), available: z.string() })),
    });
    for (const currency of corridorCurrencies()) {
      const funded = await client('POST /v1/test/fund', { json: { currency, amount: 1_234_567 } });
      expect(funded.status).toBe(201);
    }
    const rows = await database<{ currency: string; amountMinor: bigint }[]>`
      select currency, amount_minor from ledger_balances
       where account_id = ${account.account.id} and kind = 'available'`;
    const { data } = balances.parse((await client('GET /v1/balances')).body);
    const after = new Map(data.map((each) => [each.currency, each.available]));
    expect([...after.keys()].toSorted()).toEqual([...corridorCurrencies()].toSorted());
    for (const { currency, amountMinor } of rows) {
      // An independent table: ISO's list of 2024, from currency-codes.
      const digits = codes.code(currency)?.digits ?? Number.NaN;
      const text = amountMinor.toString().padStart(digits + 1, '0');
      const point = text.length - digits;
      const printed = digits === 0 ? text : `${text.slice(0, point)}.${text.slice(point)}`;
      expect(after.get(currency), currency).toBe(printed);
    }
    expect(rows).toHaveLength(corridorCurrencies().length);
  });
});
