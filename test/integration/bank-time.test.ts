import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { applyFacts } from '../../src/activities/applyFacts.js';
import { factFromLookup } from '../../src/activities/lookup.js';
import { type Database, transaction } from '../../src/db/client.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import { storeStatement } from '../../src/db/statements.js';
import type { PayoutFact } from '../../src/domain/factEffect.js';
import { statusHistory } from '../../src/domain/payout.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { untilStatus } from '../fixtures/client.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { openPayer, rowOf } from '../fixtures/payer.js';
import { payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import { startTestBank } from '../servers/bank.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const minuteMs = 60_000;
/** Tolerance for a busy machine. The tests, the database and the bank share one clock. */
const whileTestedMs = minuteMs;

describe('a payout is settled when the bank says it was', () => {
  let system: TestSystem;
  beforeAll(async () => {
    system = await startSystem();
  });
  afterAll(() => system?.stop());

  /** A payout that the bank accepted an hour ago, and about which it reports nothing by itself. */
  async function sentAnHourAgo(): Promise<PayoutRow> {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: never settle');
    await untilStatus(payer.client, id, 'sent');
    await system.database`
      update payouts set requested_at = now() - interval '61 minutes',
             submit_started_at = now() - interval '60 minutes',
             last_sent_at = now() - interval '60 minutes' where id = ${id}`;
    return rowOf(system, id);
  }

  const ago = (ms: number) => new Date(Date.now() - ms).toISOString();
  const settledMs = async (id: string) => (await rowOf(system, id)).settledAt?.getTime() ?? 0;

  async function settleByCallback(at: string | undefined): Promise<number> {
    const row = await sentAnHourAgo();
    const news = { ...newsOf(row, { type: 'settled' }), ...(at === undefined ? {} : { at }) };
    expect(await callBack(system, [news])).toBe(200);
    await expect.poll(() => settledMs(row.id), { timeout: 20_000 }).toBeGreaterThan(0);
    return settledMs(row.id);
  }

  it('in its callback', async () => {
    const at = ago(30 * minuteMs);
    expect(new Date(await settleByCallback(at)).toISOString()).toBe(at);
  });

  it.each([
    ['before it had the payout', ago(70 * minuteMs)],
    ['in the future', ago(-30 * minuteMs)],
    ['in the year 0', '0000-01-01T00:00:00Z'],
    ['in words', 'yesterday'],
    ['missing', undefined],
  ])('but when the report arrived if the time is %s', async (_when, at) => {
    const startedMs = Date.now();
    const settled = await settleByCallback(at);
    expect(settled).toBeGreaterThanOrEqual(startedMs);
    expect(settled).toBeLessThanOrEqual(Date.now());
  });

  it('by the clock of the bank, also as the customer sees it', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    const answer = await untilStatus(payer.client, id, 'settled');
    const journal = await readFile(system.bank.journalFile, 'utf8');
    const line = journal
      .split('\n')
      .find((text) => text.includes(id) && text.includes('"settled"'));
    expect(JSON.parse(line ?? '{}')).toMatchObject({ at: answer.body['settled_at'] });
  });

  const apply = (row: PayoutRow, fact: PayoutFact | undefined) =>
    transaction(system.database, (sql) =>
      applyFacts(
        sql,
        usualFactRules,
        { driver: row.driver, ids: [row.id] },
        new Map(fact ? [[row.id, fact]] : []),
      ),
    );

  it('in its answer to a poll', async () => {
    const row = await sentAnHourAgo();
    const at = ago(20 * minuteMs);
    const transfer = {
      key: row.id,
      amount: String(row.receiveMinor),
      currency: 'EUR',
      beneficiary: { name: 'Ada Lovelace', country: 'DE', account: 'DE89370400440532013000' },
      remittance: '',
      bank_reference: 'SBX-1',
    };
    const past = [
      { seq: 1, at: ago(60 * minuteMs), type: 'transfer', ...transfer },
      { seq: 2, at, type: 'settled', ...transfer, event: 'bev_1' },
    ];
    const journal = past.map((line) => `${JSON.stringify(line)}\n`).join('');
    const bank = await startTestBank('http://127.0.0.1:9/', journal);
    onTestFinished(() => bank.stop());
    const rail = createSandboxRail(bank);
    onTestFinished(() => rail.close());
    const [answer] = await rail.lookup([row.id]);
    await apply(row, factFromLookup(answer));
    expect(new Date(await settledMs(row.id)).toISOString()).toBe(at);
  });

  it('on its statement, when an operator settles it', async () => {
    const row = await sentAnHourAgo();
    const at = ago(10 * minuteMs);
    const debit = { direction: 'debit', amountMinor: row.receiveMinor ?? 0n, currency: 'EUR' };
    const line = { ...debit, key: row.id, bankReference: `SBX-${row.id}`, bookedAt: at } as const;
    const day = { rail: 'sandbox', date: at.slice(0, 10), closed: false };
    await storeStatement(system.database, { ...day, lines: [{ ...line, direction: 'debit' }] });
    const { amountMinor, currency } = debit;
    await apply(row, { kind: 'settled', amountMinor, currency });
    expect(new Date(await settledMs(row.id)).toISOString()).toBe(at);
  });
});

describe('a later step is never recorded as earlier', () => {
  let test: TestDatabase;
  let accountId: string;
  beforeAll(async () => {
    test = await createTestDatabase();
    accountId = (await createTestAccount(test.database)).account.id;
  });
  afterAll(() => test?.drop());

  /** Begins a transaction, commits `meanwhile` in another, and then continues with `later`. */
  const afterwards = (
    meanwhile: (sql: Database) => Promise<unknown>,
    later: Parameters<typeof transaction>[1],
  ) =>
    transaction(test.database, async (sql) => {
      await sql`select now()`;
      await meanwhile(test.database);
      await later(sql);
    });

  const historyOf = async (id: string) =>
    statusHistory(await payoutOf(test.database, accountId, id));

  it('in the history of a payout that two transactions moved', async () => {
    const { id } = await requestPayout(test.database, accountId);
    await afterwards(
      (sql) => sql`
        update payouts set status = 'processing', rail = 'sandbox', source_currency = 'USD',
               destination_currency = 'EUR', source_minor = 3, fee_minor = 1, net_minor = 2,
               receive_minor = 2, mid_value_minor = 2, rate = 1, mid = 1, fee_terms_id = 1, beneficiary_version = 1 where id = ${id}`,
      (sql) => sql`update payouts set status = 'failed' where id = ${id}`,
    );
    const times = (await historyOf(id)).map(({ at }) => at);
    expect(times).toHaveLength(3);
    expect(times).toEqual(times.toSorted());
  });

  it('in a history whose clock was set back', async () => {
    const { id } = await requestPayout(test.database, accountId);
    const ahead = new Date(Date.now() + 60 * minuteMs + whileTestedMs).toISOString();
    await transaction(test.database, async (sql) => {
      // No regular statement writes this, so the guards are disabled.
      await sql`set local session_replication_role = replica`;
      await sql`
        update payouts set requested_at = ${ahead} where id = ${id}`;
    });
    await test.database`update payouts set status = 'failed' where id = ${id}`;
    expect(await historyOf(id)).toMatchObject([
      { status: 'pending', at: ahead },
      { status: 'failed', at: ahead },
    ]);
  });

  it('in the events of an account', async () => {
    const { id: payoutId } = await requestPayout(test.database, accountId);
    const facts = {
      status: 'sent',
      statusReason: null,
      settledAt: null,
      returnedMinor: null,
    } as const;
    const event = { accountId, type: 'payout.sent', subjectId: payoutId, facts } as const;
    await afterwards(
      (sql) => recordWebhookEvents(sql, [event]),
      (sql) => recordWebhookEvents(sql, [event]),
    );
    const [first, second] = await test.database<{ createdAt: Date }[]>`
      select created_at from events where subject_id = ${payoutId} order by sequence`;
    expect(second?.createdAt.getTime()).toBeGreaterThanOrEqual(first?.createdAt.getTime() ?? 0);
  });
});
