import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { estimatedArrival } from '../../src/domain/arrival.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { startSystem, type TestSystem } from '../servers/system.js';

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

const history = z.array(z.object({ status: z.string(), at: z.string() }));
const list = z.object({ data: z.array(z.record(z.string(), z.unknown())) });

/** The estimated arrival of a payout from dollars to euros, from the time of acceptance in its history. */
function arrivalOf(payout: Readonly<Record<string, unknown>>): string | null {
  const all = history.parse(payout['status_history']);
  const accepted = all.find(({ status }) => status === 'processing');
  if (accepted === undefined) throw new Error('The payout was not accepted.');
  return estimatedArrival('USD', 'EUR', new Date(accepted.at))?.toISOString() ?? null;
}

it('the estimated arrival is the same in payouts, lists, batches, webhooks and the event feed', async () => {
  const { client } = system;
  const endpoint = await client('POST /v1/webhook_endpoints', {
    json: { url: receiver.url, events: ['payout.settled'] },
  });
  const stored = await client('POST /v1/beneficiaries', {
    form: {
      type: 'individual',
      name: 'Ada Lovelace',
      country: 'DE',
      currency: 'EUR',
      iban: 'DE89370400440532013000',
    },
  });
  const beneficiary = textOf(stored, 'id');
  const pair = { source_currency: 'USD', destination_currency: 'EUR' };
  const quote = await client('POST /v1/quotes', { form: { ...pair, amount: '125000' } });
  const expires = new Date(textOf(quote, 'expires_at'));
  const quoted = estimatedArrival('USD', 'EUR', expires)?.toISOString() ?? null;
  expect(quote.body).toMatchObject({ estimated_arrival: quoted });
  expect((await client(`GET /v1/quotes/${textOf(quote, 'id')}`)).body).toEqual(quote.body);

  const form = { quote: textOf(quote, 'id'), beneficiary };
  const id = textOf(await client('POST /v1/payouts', { form }), 'id');
  const payout = await untilStatus(client, id, 'settled');
  const expected = arrivalOf(payout.body);
  expect(payout.body['estimated_arrival']).toBe(expected);
  for (const version of ['2026-06-01', '2026-11-15']) {
    const answer = await client(`GET /v1/payouts/${id}?expand[]=quote`, {
      headers: { 'corridor-version': version },
    });
    expect(answer.body).toMatchObject({
      estimated_arrival: expected,
      quote: { estimated_arrival: quoted },
    });
  }

  const json = { payouts: [{ source_currency: 'USD', amount: 2_000, beneficiary }] };
  const batch = textOf(await client('POST /v1/batches', { json }), 'id');
  const item = await receiver.next(({ body }) => body.includes(batch));
  const { data } = z
    .object({ data: z.record(z.string(), z.unknown()) })
    .parse(new Webhook(textOf(endpoint, 'secret')).verify(item.body, item.headers));
  expect(data['estimated_arrival']).toBe(arrivalOf(data));
  const items = await client(`GET /v1/batches/${batch}/payouts`);
  expect(items.body).toMatchObject({
    data: [{ id: data['id'], estimated_arrival: data['estimated_arrival'] }],
  });

  const all = list.parse((await client('GET /v1/payouts')).body).data;
  expect(all).toHaveLength(2);
  const events = list.parse((await client(`GET /v1/events?payout=${id}`)).body).data;
  expect(events.length).toBeGreaterThan(0);
  for (const shown of [
    ...all,
    ...events.map((event) => z.record(z.string(), z.unknown()).parse(event['data'])),
  ]) {
    expect(shown['estimated_arrival']).toBe(arrivalOf(shown));
  }
});

it('the estimated arrival is null for a payout that was not accepted', async () => {
  const { client } = system;
  const payout = await client('POST /v1/payouts', {
    form: {
      source_currency: 'USD',
      destination_currency: 'EUR',
      amount: '2000',
      beneficiary: 'bnf_none',
    },
  });
  expect(payout.status).toBe(422);
  const { data } = list.parse((await client('GET /v1/payouts?status=failed')).body);
  expect(data).toMatchObject([{ status: 'failed', estimated_arrival: null }]);
});

it('the estimated arrival of a corridor is that of a payout accepted now', async () => {
  const before = new Date();
  const { data } = list.parse((await system.client('GET /v1/corridors')).body);
  const after = new Date();
  for (const corridor of data) {
    const source = String(corridor['source_currency']);
    const destination = String(corridor['destination_currency']);
    const possible = [before, after].map((at) => estimatedArrival(source, destination, at));
    const shown = possible.map((arrival) => arrival?.toISOString() ?? null);
    expect(shown).toContain(corridor['estimated_arrival']);
  }
});
