import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { simulateOrders } from '../../sandbox/bank/orders.js';
import { searchAttributes } from '../../src/workflows/messages.js';
import type { JournalLine } from '../assertions/bankJournal.js';
import { expectedPostings, postingsOf } from '../assertions/postings.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { type Ending, orderEndings } from '../fixtures/orderEndings.js';
import {
  historyOf,
  journalOf,
  openPayer,
  type Payer,
  rowOf,
  untilParked,
  untilSubmitted,
  wake,
} from '../fixtures/payer.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

type Hastened = {
  readonly attention: string;
  /** Makes the ending come within a test's time. */
  readonly hasten: (system: TestSystem, id: string) => Promise<unknown>;
};

/** Orders that need an operator in the end: after a day, and after the rail's settlement time. */
const hastened: Readonly<Record<string, Hastened>> = {
  'timeout then nothing': {
    attention: 'outcome_unknown',
    // The bank remembers keys for a day, during which the same key is submitted again.
    hasten: async (system, id) => {
      await untilSubmitted(system, id);
      await system.database`
        update payouts set submit_started_at = submit_started_at - interval '25 hours'
         where id = ${id}`;
      await wake(system, id);
    },
  },
  'never settle': {
    attention: 'settle_by_passed',
    hasten: async (system, id) => {
      await untilSubmitted(system, id);
      await system.database`
        update payouts set settle_by = now() - interval '1 hour' where id = ${id}`;
      await wake(system, id);
    },
  },
};

const webhookBody = z.object({
  type: z.string(),
  data: z.object({ id: z.string(), status: z.string() }),
});

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

/** A payer whose events are all sent to the receiver. */
async function openListener(): Promise<Payer & { readonly secret: string }> {
  const payer = await openPayer(system);
  const endpoint = await payer.client('POST /v1/webhook_endpoints', {
    json: { url: receiver.url, events: ['*'] },
  });
  return { ...payer, secret: textOf(endpoint, 'secret') };
}

/** Waits until the payout has reached its order's ending, and its workflow has nothing left to do. */
async function untilEnding(payer: Payer, id: string, ending: Ending): Promise<void> {
  await untilStatus(payer.client, id, ending.history.at(-1) ?? '');
  if (ending.attention === undefined) {
    // A closed workflow has made its deliveries.
    await system.temporal.workflow.getHandle(id).result();
    return;
  }
  await untilParked(system, id);
  const handle = system.temporal.workflow.getHandle(id);
  await expect
    .poll(async () => (await handle.describe()).typedSearchAttributes.get(shown), {
      timeout: 9_000,
    })
    .toBe(ending.attention);
}

const shown = searchAttributes.attentionReason;

/** The event types of an ending's statuses, such as `payout.sent`; the first two have no event. */
function eventTypesOf({ history }: Ending): readonly string[] {
  return history.slice(2).map((status) => `payout.${status}`);
}

function endingOf(order: string): Ending {
  const ending = orderEndings[order];
  if (ending === undefined) throw new Error(`There is no ending for ${order}.`);
  return { ...ending, ...hastened[order] };
}

describe('an order of the sandbox bank', () => {
  it('has a test for each', () => {
    expect(Object.keys(orderEndings)).toEqual(simulateOrders.map(({ order }) => order));
  });

  it.each(Object.keys(orderEndings))('%s ends as the table says', async (order) => {
    const ending = endingOf(order);
    const payer = await openListener();
    const id = await payer.send(ending.reference);
    await hastened[order]?.hasten(system, id);
    await untilEnding(payer, id, ending);

    const answer = await payer.client(`GET /v1/payouts/${id}`);
    expect(historyOf(answer)).toEqual(ending.history);
    expect(answer.body).toMatchObject({
      status: ending.history.at(-1),
      status_reason: ending.reason,
    });
    const row = await rowOf(system, id);
    expect(row.attentionReason).toBe(ending.attention ?? null);

    expect(await journalOf(system, id)).toEqual(ending.journal);
    const expected = expectedPostings(row);
    const entries = ending.entries.map((kind) => [kind, expected[kind]]);
    expect(await postingsOf(system.database, id)).toEqual({
      accept: expected.accept,
      ...Object.fromEntries(entries),
    });
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
    expect(await payer.balance()).toEqual(balanceAfter(ending, row.feeMinor ?? 0n));

    expect(await payer.eventsOf(id)).toEqual(eventTypesOf(ending));
    await expectWebhooks(id, payer.secret, ending);
  });
});

/** The balance of 1,000.00 USD after an order for 100.00. */
function balanceAfter({ entries }: Ending, feeMinor: bigint) {
  const [last] = entries.slice(-1);
  switch (last) {
    case undefined:
      return { available: 90_000n, held: 10_000n };
    case 'settle':
      return { available: 90_000n, held: 0n };
    case 'release':
      return { available: 100_000n, held: 0n };
    case 'return':
      return { available: 100_000n - feeMinor, held: 0n };
  }
}

/** Verifies that each event arrived once, signed, with the payout as it was at that time. */
async function expectWebhooks(id: string, secret: string, ending: Ending): Promise<void> {
  const types = eventTypesOf(ending);
  for (const type of types) {
    await receiver.next(({ body }) => body.includes(id) && body.includes(`"${type}"`));
  }
  const hooks = receiver.received.filter(({ body }) => body.includes(id));
  const bodies = hooks.map(({ body, headers }) =>
    webhookBody.parse(new Webhook(secret).verify(body, headers)),
  );
  expect(bodies.map(({ type }) => type).sort()).toEqual([...types].sort());
  for (const { type, data } of bodies) expect(`payout.${data.status}`).toBe(type);
}

describe('money that may be on its way', () => {
  it('stays held, however often the parked payout is woken', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then nothing');
    await hastened['timeout then nothing']?.hasten(system, id);
    await untilParked(system, id);
    const handle = system.temporal.workflow.getHandle(id);
    await expect
      .poll(async () => (await handle.describe()).typedSearchAttributes.get(attention))
      .toBe(true);
    await wake(system, id);
    await handle.terminate('an accident');
    await wake(system, id);
    // The run that the wake started shows the same attention as the previous run.
    const next = system.temporal.workflow.getHandle(id);
    await expect
      .poll(async () => (await next.describe()).typedSearchAttributes.get(shown))
      .toBe('outcome_unknown');
    expect(await rowOf(system, id)).toMatchObject({ status: 'processing' });
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 10_000n });
    expect(await journalOf(system, id)).toEqual([]);
  });

  it('is booked once if each callback arrives four times', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: duplicate callbacks');
    await untilStatus(payer.client, id, 'settled');
    // Three of the four have the same ID, and the bank repeats them until each is answered.
    await expect
      .poll(async () => (await system.bank.journal()).filter(isAcknowledged(id)).length)
      .toBe(4);
    await expect
      .poll(async () => {
        const kept = await system.database`
          select case when i.id = any (p.applied_facts) then 'moved' else outcome end as outcome
            from rail_inbox i join payouts p on p.id = i.payout_id where p.id = ${id} order by i.id`;
        return kept.map((row) => row['outcome']);
      })
      .toEqual(['moved', 'nothing new']);
    expect(Object.keys(await postingsOf(system.database, id))).toEqual(['accept', 'settle']);
    expect(await payer.eventsOf(id)).toEqual(['payout.sent', 'payout.settled']);
  });
});

const attention = searchAttributes.needsAttention;

const isAcknowledged = (id: string) => (line: JournalLine) =>
  line.type === 'acknowledged' && line.key === id;
