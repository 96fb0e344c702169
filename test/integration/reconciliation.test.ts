import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { MockActivityEnvironment } from '@temporalio/testing';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { maintenanceActivities } from '../../src/activities/maintenance.js';
import { readStatements } from '../../src/activities/statements.js';
import { exactlyOne, longTransaction, type Sql, transaction } from '../../src/db/client.js';
import { firstSentAt, lostTimes } from '../../src/db/interruptions.js';
import { listBalanceBreaks, postEntries } from '../../src/db/ledger.js';
import { listOrphans } from '../../src/db/orphans.js';
import { claimOverduePayouts } from '../../src/db/payouts.js';
import { listBreaks, movementTotals, storeStatement } from '../../src/db/statements.js';
import { fundEntry } from '../../src/domain/ledger.js';
import type { Statement, StatementLine } from '../../src/domain/railReport.js';
import { createRegistry, show } from '../../src/metrics.js';
import { createRails } from '../../src/rails/registry.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { referenceSource } from '../../src/rates/reference.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { untilStatus } from '../fixtures/client.js';
import { environmentOf } from '../fixtures/operators.js';
import {
  journalOf,
  openPayer,
  rowOf,
  untilParked,
  untilSubmitted,
  wake,
} from '../fixtures/payer.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { startTestBank, type TestBank } from '../servers/bank.js';
import { createTestAccount, unbalancedCurrencies, withoutTriggers } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const registry = await createRegistry('test');
let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(async () => {
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

/** Runs one of the maintenance workflows to its end, as its schedule would. */
function run(workflow: 'statement' | 'sweep' | 'balances'): Promise<unknown> {
  return system.temporal.workflow.execute(workflow, {
    taskQueue: taskQueues.payouts,
    workflowId: `${workflow}-${crypto.randomUUID()}`,
  });
}

/** The activities' dependencies, except the metrics that a test checks. */
function maintenanceDeps() {
  return {
    database: system.worker,
    temporal: system.temporal,
    rails: createRails([]),
    rateSource: referenceSource,
    log: pino({ level: 'silent' }),
  };
}

const dayMs = 24 * 60 * 60 * 1000;

/** Two days ago: that day and the next are closed when the statements are read. */
const pastDays = 2;

const line = z.looseObject({
  seq: z.number(),
  at: z.string(),
  type: z.string(),
  key: z.string(),
});
type Line = z.infer<typeof line>;

/** The bank's journal of today, moved two days into the past. */
async function journalOfThePast(): Promise<readonly Line[]> {
  const text = await readFile(system.bank.journalFile, 'utf8');
  const lines = text.split('\n').filter((written) => written !== '');
  return lines.map((written) => {
    const parsed = line.parse(JSON.parse(written));
    return { ...parsed, at: new Date(Date.parse(parsed.at) - pastDays * dayMs).toISOString() };
  });
}

/** Moves today's ledger entries two days into the past. */
async function moveLedgerIntoThePast(): Promise<void> {
  await system.database.begin(async (sql) => {
    // Disables the triggers that protect the ledger, for this transaction only.
    await sql`set local session_replication_role = replica`;
    const past = sql`make_interval(days => ${pastDays})`;
    await sql`update payouts set requested_at = requested_at - ${past}`;
    await sql`update ledger_entries set created_at = created_at - ${past}`;
  });
}

/** Runs the command as an operator does; returns its output and exit code. */
async function reconcile(): Promise<{ readonly output: string; readonly code: number }> {
  const cli = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
  const env = environmentOf(system.urls.operator);
  return new Promise((resolve) => {
    execFile(process.execPath, [cli, 'reconcile'], { env }, (error, stdout, stderr) => {
      resolve({ output: stdout + stderr, code: error === null ? 0 : Number(error.code) });
    });
  });
}

describe("the bank's statement against the ledger", () => {
  let settled: string;
  let returned: string;
  let failed: string;
  let past: readonly Line[];
  let bank: TestBank | undefined;

  beforeAll(async () => {
    const payer = await openPayer(system);
    settled = await payer.send('an ordinary payout');
    returned = await payer.send('simulate: return AM04 after 1s');
    failed = await payer.send('simulate: reject AC04');
    const parked = await payer.send('simulate: never settle');
    await untilStatus(payer.client, settled, 'settled');
    await untilStatus(payer.client, returned, 'returned');
    await untilStatus(payer.client, failed, 'failed');
    await untilStatus(payer.client, parked, 'sent');
    // The acknowledgements of its three events are the bank's last journal entries.
    await eventually('the bank has delivered every event', 10_000, async () => {
      const journal = await system.bank.journal();
      return journal.filter(({ type }) => type === 'acknowledged').length === 3 || undefined;
    });
    expect(await run('statement')).toBe(0);
    await moveLedgerIntoThePast();
    past = await journalOfThePast();
  });
  beforeEach(async () => {
    await system.database`truncate statement_entries, statements`;
  });
  afterEach(async () => {
    await bank?.stop();
    bank = undefined;
  });

  /** Reads the statements of a bank with this journal; the number of breaks is checked in three ways. */
  async function readFrom(journal: readonly Line[]) {
    const text = journal.map((each) => `${JSON.stringify(each)}\n`).join('');
    bank = await startTestBank(`${system.apiUrl}/rails/sandbox/callbacks`, text);
    const rail = createSandboxRail(bank);
    const activities = maintenanceActivities({
      ...maintenanceDeps(),
      rails: createRails([rail]),
    });
    const counted = await attempt(activities.readStatements);
    // Reading again finds no further breaks.
    expect(await attempt(activities.readStatements)).toBe(counted);
    await rail.close();
    const breaks = await listBreaks(system.database, 100);
    expect(breaks).toHaveLength(counted);
    const gauge = await registry.getSingleMetricAsString('corridor_statement_breaks');
    expect(gauge.split(' ').at(-1)).toBe(String(counted));
    return breaks;
  }

  /** Verifies the only break, the command's text about it, and the exit code 1. */
  async function expectOnly(breaks: readonly object[], expected: object, text: string) {
    expect(breaks).toMatchObject([{ rail: 'sandbox', ...expected }]);
    const { output, code } = await reconcile();
    expect(output).toContain(`${text}, for ${pastDays * 24} h`);
    expect(output).toContain('1 break.');
    expect(code).toBe(1);
  }

  it('has no break after normal days', async () => {
    expect(await readFrom(past)).toEqual([]);
    const { database } = system;
    const entries = await database`
      select rail_key, direction from statement_entries order by rail_key, direction desc`;
    expect(entries).toMatchObject([
      { railKey: settled, direction: 'debit' },
      { railKey: returned, direction: 'debit' },
      { railKey: returned, direction: 'credit' },
    ]);
    // Today is read too, but it is not closed.
    const [closed] = await database<{ days: number }[]>`
      select (current_date - max(statement_date))::int as days from statements`;
    expect(closed).toEqual({ days: 1 });
    const { output, code } = await reconcile();
    const [{ day } = { day: '' }] = await database<{ day: string }[]>`
      select max(statement_date)::text as day from statements`;
    expect(output).toContain(`sandbox: last closed statement is for ${day}\n`);
    expect(output).toMatch(/EUR debits {2}bank (\S+) {2}ledger \1\n/);
    expect(output).toMatch(/EUR credits {2}bank (\S+) {2}ledger \1\n/);
    expect(output).toMatch(/EUR postings \(test\) {2}[1-9]\d*, which sum to 0\.00 EUR\n/);
    expect(output).toMatch(/USD to EUR, test: 1 open, 100\.00 USD held, \d+\.\d\d EUR due\n/);
    expect(output).toContain('No breaks.');
    expect(code).toBe(0);
  });

  it.each([
    { kind: 'not in the ledger', isKnown: true },
    { kind: 'no such payout', isKnown: false },
  ] as const)('has a break for a payment of the bank: $kind', async ({ kind, isKnown }) => {
    const key = isKnown ? failed : 'po_stranger';
    const settledLines = past.filter((each) => each.key === settled);
    const foreign = settledLines.map((each, index) => ({
      ...each,
      seq: past.length + index + 1,
      key,
      bank_reference: 'SBXSTRANGER',
    }));
    const breaks = await readFrom([...past, ...foreign]);
    const { receiveMinor } = await rowOf(system, settled);
    await expectOnly(
      breaks,
      {
        payoutId: key,
        kind,
        direction: 'debit',
        bankMinor: receiveMinor,
        bankCurrency: 'EUR',
        ledgerMinor: null,
      },
      `${key}  debit ${kind}`,
    );
  });

  it('has a break for a ledger entry that the bank’s statement does not show', async () => {
    const breaks = await readFrom(past.filter(({ key }) => key !== settled));
    const { receiveMinor } = await rowOf(system, settled);
    await expectOnly(
      breaks,
      {
        payoutId: settled,
        kind: 'not on the statement',
        direction: 'debit',
        bankMinor: null,
        ledgerMinor: receiveMinor,
        ledgerCurrency: 'EUR',
      },
      `${settled}  debit not on the statement`,
    );
    expect(ageMs(breaks)).toBeGreaterThan(pastDays * dayMs);
    expect(ageMs(breaks)).toBeLessThan(pastDays * dayMs + 5 * 60_000);
  });

  it('has a break where the amounts differ', async () => {
    const { receiveMinor } = await rowOf(system, settled);
    const wrongMinor = (receiveMinor ?? 0n) + 1n;
    const breaks = await readFrom(
      past.map((each) =>
        each.key === settled && each.type === 'settled'
          ? { ...each, amount: String(wrongMinor) }
          : each,
      ),
    );
    await expectOnly(
      breaks,
      {
        payoutId: settled,
        kind: 'amounts differ',
        bankMinor: wrongMinor,
        ledgerMinor: receiveMinor,
      },
      `${settled}  debit amounts differ`,
    );
  });

  /** A statement line of the settled payout's payment, two days ago. */
  async function payment(): Promise<StatementLine> {
    const { receiveMinor } = await rowOf(system, settled);
    return {
      key: settled,
      bankReference: 'SBX1',
      direction: 'debit',
      amountMinor: receiveMinor ?? 0n,
      currency: 'EUR',
      bookedAt: new Date(Date.now() - pastDays * dayMs).toISOString(),
    };
  }

  /** Reads a bank's statements by day; returns the breaks of the settled payout. */
  async function readDays(day: (date: string) => Partial<Statement>) {
    const rail = new QuietRail();
    const statement = async (date: string) => ({ closed: true, lines: [], ...day(date) });
    await readStatements(system.worker, Object.assign(rail, { statement }));
    const breaks = await listBreaks(system.database, 100);
    return breaks.filter(({ payoutId }) => payoutId === settled);
  }

  const dayOf = (daysAgo: number) =>
    new Date(Date.now() - daysAgo * dayMs).toISOString().slice(0, 10);

  it('has a break where the bank has paid one payout twice, under one reference', async () => {
    const line = await payment();
    const date = dayOf(pastDays);
    const breaks = await readDays((day) => (day === date ? { lines: [line, line] } : {}));
    expect(breaks).toMatchObject([
      {
        kind: 'amounts differ',
        bankMinor: 2n * line.amountMinor,
        ledgerMinor: line.amountMinor,
      },
    ]);
    const { output, code } = await reconcile();
    expect(output).toContain(`${settled}  debit amounts differ`);
    expect(code).toBe(1);
  });

  it('counts a payment in both totals when the ledger booked it a day after the bank', async () => {
    const line = await payment();
    const paidOn = dayOf(pastDays + 1);
    await readDays((day) => ({ closed: day <= paidOn, lines: day === paidOn ? [line] : [] }));
    const { amountMinor: sumMinor } = line;
    expect(await movementTotals(system.worker)).toEqual([
      { currency: 'EUR', direction: 'debit', bankMinor: sumMinor, ledgerMinor: sumMinor, drift: 0 },
    ]);
    await system.database`truncate statement_entries, statements`;
    await readDays((day) => ({ closed: day <= dayOf(pastDays - 1) }));
    // The bank shows nothing although the day after the ledger's own is closed.
    const [missing] = await movementTotals(system.worker);
    expect(missing).toMatchObject({ currency: 'EUR', direction: 'credit', bankMinor: 0n });
    expect(missing?.drift).toBeLessThan(0);
  });

  it('counts a double payment even if the statement of another day cannot be read', async () => {
    const line = await payment();
    const statement = async (date: string) => {
      if (date === dayOf(pastDays + 1)) throw new Error('This day cannot be read.');
      return { closed: true, lines: date === dayOf(pastDays) ? [line, line] : [] };
    };
    const rails = createRails([Object.assign(new QuietRail(), { statement })]);
    const activities = maintenanceActivities({ ...maintenanceDeps(), rails });
    show('statement_breaks', {}, 0);
    await expect(attempt(activities.readStatements)).rejects.toThrow('cannot be read');
    // What the ledger alone has may stand in the missing statement: only the double payment counts.
    const gauge = await registry.getSingleMetricAsString('corridor_statement_breaks');
    expect(gauge.split(' ').at(-1)).toBe('1');
  });

  /** Only this payout is counted among the ledger's debits, and the bank has none. */
  async function expectDebitsOf(id: string, sums: Awaited<ReturnType<typeof movementTotals>>) {
    const { receiveMinor } = await rowOf(system, id);
    const debits = sums.filter(({ direction }) => direction === 'debit');
    expect(debits).toMatchObject([{ bankMinor: 0n, ledgerMinor: receiveMinor }]);
  }

  it('counts a payment in neither total while the day that shows it is open', async () => {
    const line = await payment();
    const date = dayOf(pastDays);
    await readDays((day) => (day === date ? { closed: false, lines: [line] } : {}));
    await expectDebitsOf(returned, await movementTotals(system.worker));
  });

  it('counts no settlement that two people have reversed', async () => {
    // The ledger booked it two days ago, the bank shows nothing, and it was reversed today.
    await withoutTriggers(
      system.database,
      (sql) => sql`
        insert into ledger_entries (payout_id, kind, action_id, reverses, from_ids, to_ids, amounts_minor)
        select payout_id, 'correction', 'op_test', id, to_ids, from_ids, amounts_minor
          from ledger_entries where payout_id = ${settled} and kind = 'settle'`,
    );
    expect(await readDays(() => ({}))).toEqual([]);
    const sums = await movementTotals(system.worker);
    await withoutTriggers(
      system.database,
      (sql) => sql`delete from ledger_entries where payout_id = ${settled} and kind = 'correction'`,
    );
    await expectDebitsOf(returned, sums);
  });

  it('replaces the lines of an open day when it is read again', async () => {
    const line = await payment();
    const readOpen = (lines: readonly StatementLine[]) =>
      readDays((day) =>
        day < dayOf(pastDays) ? {} : { closed: false, lines: linesOn(day, lines) },
      );
    const linesOn = (day: string, lines: readonly StatementLine[]) =>
      day === dayOf(pastDays) ? lines : [];

    const wrong = { ...line, amountMinor: line.amountMinor + 1n };
    expect(await readOpen([wrong, line])).toMatchObject([
      { bankMinor: 2n * line.amountMinor + 1n },
    ]);
    expect(await readOpen([wrong])).toMatchObject([{ bankMinor: line.amountMinor + 1n }]);
    expect(await readOpen([line])).toEqual([]);
    const stored = await system.database`select line, rail_key from statement_entries`;
    expect(stored).toEqual([{ line: 1, railKey: settled }]);
  });

  it('never changes a closed day, even by a statement read before it was closed', async () => {
    const line = await payment();
    const date = dayOf(pastDays);
    expect(await readDays((day) => (day === date ? { lines: [line] } : {}))).toEqual([]);
    const late = { rail: 'sandbox', date, closed: false, lines: [line, line] };
    await transaction(system.worker, (sql) => storeStatement(sql, late));
    expect(await readDays((day) => (day === date ? { lines: [line, line] } : {}))).toEqual([]);
    for (const statement of [
      'delete from statement_entries',
      'update statement_entries set amount_minor = 1',
      `insert into statement_entries select rail, statement_date, 2, bank_reference, direction,
         rail_key, currency, amount_minor, booked_at from statement_entries`,
      'delete from statements',
    ]) {
      const changed = system.database.unsafe(statement);
      await expect(changed, statement).rejects.toThrow(
        /closed day|replaced, not edited|append-only/,
      );
    }
  });

  it('keeps a day complete when it is read concurrently', async () => {
    const line = await payment();
    const lines = [line, { ...line, key: 'po_other' }];
    const date = dayOf(pastDays);
    const read = () => readDays((day) => (day === date ? { lines } : {}));
    await Promise.all([read(), read(), read(), read()]);
    const stored =
      await system.database`select line, rail_key from statement_entries order by line`;
    expect(stored).toEqual([
      { line: 1, railKey: settled },
      { line: 2, railKey: 'po_other' },
    ]);
  });

  it('has a break where the returned amounts differ', async () => {
    const { returnedMinor } = await rowOf(system, returned);
    const breaks = await readFrom(
      past.map((each) =>
        each.key === returned && each.type === 'returned' ? { ...each, amount: '1' } : each,
      ),
    );
    await expectOnly(
      breaks,
      {
        payoutId: returned,
        kind: 'amounts differ',
        direction: 'credit',
        bankMinor: 1n,
        ledgerMinor: returnedMinor,
      },
      `${returned}  credit amounts differ`,
    );
  });

  it('has a break where the currencies differ', async () => {
    const breaks = await readFrom(
      past.map((each) =>
        each.key === settled && each.type === 'settled' ? { ...each, currency: 'CHF' } : each,
      ),
    );
    await expectOnly(
      breaks,
      { payoutId: settled, kind: 'amounts differ', bankCurrency: 'CHF', ledgerCurrency: 'EUR' },
      `${settled}  debit amounts differ`,
    );
  });

  it('reports nothing as missing at the bank before the next day is closed', async () => {
    await system.database.begin(async (sql) => {
      await sql`set local session_replication_role = replica`;
      await sql`
        update ledger_entries set created_at = created_at + interval '1 day'
         where payout_id = ${settled} and kind = 'settle'`;
    });
    expect(await readFrom(past.filter(({ key }) => key !== settled))).toEqual([]);
    await system.database.begin(async (sql) => {
      await sql`set local session_replication_role = replica`;
      await sql`
        update ledger_entries set created_at = created_at - interval '1 day'
         where payout_id = ${settled} and kind = 'settle'`;
    });
  });
});

function ageMs(breaks: readonly { readonly since: Date }[]): number {
  return Date.now() - exactlyOne(breaks[0]).since.getTime();
}

describe('balances against their postings', () => {
  const edit = (accountId: string, addMinor: bigint) =>
    withoutTriggers(
      system.database,
      (sql) => sql`
        update ledger_balances set amount_minor = amount_minor + ${addMinor}
         where account_id = ${accountId} and kind = 'available' and currency = 'EUR'`,
    );

  it('have a break where a balance was edited, on the schedule, in the command and as a metric', async () => {
    const { account } = await createTestAccount(system.database, { funds: { EUR: 100_000n } });
    expect(await run('balances')).toBe(0);
    await edit(account.id, 49_900_000n);
    expect(await run('balances')).toBe(1);

    const { compareBalances } = maintenanceActivities(maintenanceDeps());
    expect(await new MockActivityEnvironment().run(compareBalances)).toBe(1);
    const gauge = await registry.getSingleMetricAsString('corridor_balance_breaks');
    expect(gauge.split(' ').at(-1)).toBe('1');

    const { output, code } = await reconcile();
    expect(output).toContain(
      `${account.id}  available balance 500,000.00 EUR, postings 1,000.00 EUR`,
    );
    expect(code).toBe(1);
    await edit(account.id, -49_900_000n);
    expect(await run('balances')).toBe(0);
  });

  it('have a break where money changed its currency', async () => {
    const { account } = await createTestAccount(system.database, { funds: { EUR: 1n, JPY: 1n } });
    const inCurrency = (currency: string) => system.database`
      (select id from ledger_accounts
        where account_id = ${account.id} and kind = 'available' and currency = ${currency})`;
    await withoutTriggers(
      system.database,
      (sql) => sql`
        insert into ledger_entries (kind, from_ids, to_ids, amounts_minor)
        values ('fund', array[${inCurrency('EUR')}], array[${inCurrency('JPY')}], array[5::bigint])`,
    );
    const { output, code } = await reconcile();
    expect(output).toMatch(/sum to -0\.05 EUR\nJPY postings \(test\) {2}\d+, which sum to 5 JPY\n/);
    expect(code).toBe(1);
    await withoutTriggers(
      system.database,
      (sql) => sql`delete from ledger_entries where from_ids = array[${inCurrency('EUR')}]`,
    );
    expect((await reconcile()).output).toContain(', which sum to 0 JPY\n');
  });

  it('have a break where a customer has postings and no balance', async () => {
    const { account } = await createTestAccount(system.database, { funds: { EUR: 1n } });
    const change = (statement: string) =>
      withoutTriggers(system.database, (sql) => sql.unsafe(statement, [account.id]));
    await change('delete from ledger_balances where account_id = $1');
    expect(await listBalanceBreaks(system.worker)).toMatchObject([
      { accountId: account.id, kind: 'available', balanceMinor: null, postingsMinor: 1n },
    ]);
    await change(`
      insert into ledger_balances (ledger_account_id, account_id, kind, currency, amount_minor)
      select id, account_id, kind, currency, 1 from ledger_accounts where account_id = $1`);
  });

  it('are compared in one snapshot, without waiting for payments or holding them up', async () => {
    const { account } = await createTestAccount(system.database, { funds: { EUR: 1n } });
    const fund = (sql: Sql) =>
      postEntries(sql, [
        { entry: fundEntry('EUR', 1n), mode: 'test', accountId: account.id, payoutId: null },
      ]);
    await transaction(system.worker, async (sql) => {
      // The balance stays locked until this transaction ends.
      await fund(sql);
      expect(await listBalanceBreaks(system.worker)).toEqual([]);
    });
    const compare = () => longTransaction(system.worker, 60_000, listBalanceBreaks);
    const compared = Array.from({ length: 20 }, compare);
    const funded = Array.from({ length: 40 }, () => fund(system.worker));
    expect((await Promise.all(compared)).flat()).toEqual([]);
    await Promise.all(funded);
  });
});

describe('a row with a dangling reference', () => {
  /** A row of each kind with a reference that no foreign key enforces. */
  const planted = [
    {
      reference: 'ledger_entries.payout_id',
      plant: (missing: string) => `
        insert into ledger_entries (payout_id, kind, from_ids, to_ids, amounts_minor)
        select '${missing}', 'release', from_ids, to_ids, amounts_minor from ledger_entries limit 1`,
      remove: (missing: string) => `delete from ledger_entries where payout_id = '${missing}'`,
    },
    {
      reference: 'rail_inbox.payout_id',
      plant: (missing: string) => `
        insert into rail_inbox (rail, rail_event_id, rail_key, payout_id, fact)
        values ('sandbox', '${missing}', '${missing}', '${missing}', '{}')`,
      remove: (missing: string) => `delete from rail_inbox where payout_id = '${missing}'`,
    },
    {
      reference: 'events.account_id',
      plant: (missing: string) => `
        insert into events (id, account_id, sequence, type, subject_id, facts)
        values ('evt_z', '${missing}', 1, 'payout.sent', 'po_z', '{}')`,
      remove: (missing: string) => `delete from events where account_id = '${missing}'`,
    },
    {
      reference: 'deliveries.event_id',
      plant: (missing: string) => `
        insert into deliveries (event_id, endpoint_id, status) select '${missing}', id, 'delivered'
          from webhook_endpoints limit 1`,
      remove: (missing: string) => `delete from deliveries where event_id = '${missing}'`,
    },
    {
      reference: 'deliveries.endpoint_id',
      plant: (missing: string) => `
        insert into deliveries (event_id, endpoint_id, status)
        select max(id), '${missing}', 'delivered' from events`,
      remove: (missing: string) => `delete from deliveries where endpoint_id = '${missing}'`,
    },
  ];

  it.each(planted)(
    'is found for $reference, on the schedule, in the command and as a metric',
    async (kind) => {
      const { client, send } = await openPayer(system);
      await client('POST /v1/webhook_endpoints', {
        json: { url: 'http://127.0.0.1:1/', events: ['*'] },
      });
      await untilStatus(client, await send('an ordinary payout'), 'settled');
      const missing = `missing_${kind.reference}`;
      const change = (statement: string) =>
        withoutTriggers(system.database, (sql) => sql.unsafe(statement));
      const { compareBalances } = maintenanceActivities(maintenanceDeps());
      const counted = async () => {
        await new MockActivityEnvironment().run(compareBalances);
        const gauge = await registry.getSingleMetricAsString('corridor_orphan_rows');
        return gauge.trim().split(' ').at(-1);
      };
      expect(await counted()).toBe('0');
      await change(kind.plant(missing));
      expect(await listOrphans(system.worker)).toMatchObject([
        { reference: kind.reference, missingId: missing },
      ]);
      expect(await counted()).toBe('1');
      const { output, code } = await reconcile();
      expect(output).toContain(`${kind.reference}: there is no ${missing}`);
      expect(code).toBe(1);
      await change(kind.remove(missing));
      expect(await listOrphans(system.worker)).toEqual([]);
    },
  );
});

describe('the sweep', () => {
  const isOpen = async (id: string) =>
    (await system.temporal.workflow.getHandle(id).describe()).status.name === 'RUNNING';

  /** As if the payouts had not been touched for long. */
  const makeDue = (...ids: readonly string[]) => system.database`
    update payouts set wake_at = now() - interval '1 second' where id = any (${[...ids]})`;

  it('starts a payout that was recorded but never started, once it is due', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    await run('sweep');
    // The request may still be on its way to Temporal.
    await expect(isOpen(id)).rejects.toThrow('not found');
    await makeDue(id);
    await run('sweep');
    await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe('settled');
    expect(await journalOf(system, id)).toEqual(['transfer', 'settled']);
  });

  it('records a period that the database may have lost, once', async () => {
    const count = async (from: 'known_interruptions' | 'interruptions') =>
      (await system.worker`select from ${system.worker(from)}`).count;
    /** Whether a payout requested just before counts as lost. */
    const isLost = async () => {
      const sql = system.worker;
      const [row] = await sql<{ isLost: boolean | null }[]>`
        with ${lostTimes(sql)}
        select ${firstSentAt(sql)} <= now() + interval '1 ms' as is_lost
          from (select 'po_none' as id, 'processing' as status,
                       null::timestamptz as submit_started_at, null::timestamptz as sent_since,
                       now() - interval '1 second' as requested_at) p`;
      return row?.isLost;
    };
    await run('sweep');
    expect(await count('known_interruptions')).toBe(0);
    // A dump may be restored to the same cluster, as another database.
    const own = await system.database`
      select from heartbeats, pg_database
       where datname = current_database() and history like '%/%/' || oid`;
    expect(own.count).toBe(1);
    let recorded = 0;
    for (const change of [
      // A failover to a server whose clock is behind.
      { history: 'another/00000001', beaten_at: new Date(Date.now() + 60 * 60_000) },
      // The traces of a point-in-time restore or a failover, and of a copied disk or a long stop.
      { history: 'another/00000001' },
      { beaten_at: new Date(Date.now() - 11 * 60_000) },
    ]) {
      await system.database`update heartbeats set ${system.database(change)}`;
      expect(await count('interruptions')).toBe(recorded);
      recorded += 1;
      // Known immediately, not only from the next sweep on.
      expect(await count('known_interruptions')).toBe(recorded);
      expect(await isLost()).toBe(true);
      await run('sweep');
      await run('sweep');
      expect(await count('interruptions')).toBe(recorded);
      expect(await count('known_interruptions')).toBe(recorded);
    }
    await withoutTriggers(system.database, async (sql) => {
      await sql`delete from interruptions`;
    });
  });

  it('restarts a workflow that was terminated during the submission', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then nothing');
    await untilSubmitted(system, id);
    await system.temporal.workflow.getHandle(id).terminate('an accident');
    await makeDue(id);
    await run('sweep');
    expect(await isOpen(id)).toBe(true);
    // It continues from the row: the bank's key is so old that the payout is parked.
    await system.database`
      update payouts set submit_started_at = submit_started_at - interval '25 hours'
       where id = ${id}`;
    await wake(system, id);
    expect(await untilParked(system, id)).toMatchObject({
      status: 'processing',
      attentionReason: 'outcome_unknown',
    });
  });

  it('restarts a workflow that was terminated after the submission', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: never settle');
    await untilStatus(payer.client, id, 'sent');
    await system.temporal.workflow.getHandle(id).terminate('an accident');
    await system.database`
      update payouts set settle_by = now() - interval '1 hour' where id = ${id}`;
    await makeDue(id);
    await run('sweep');
    expect(await untilParked(system, id)).toMatchObject({ attentionReason: 'settle_by_passed' });
    expect(await journalOf(system, id)).toEqual(['transfer']);
  });

  it('leaves a final payout alone', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    await untilStatus(payer.client, id, 'settled');
    const [row] = await system.database`select wake_at from payouts where id = ${id}`;
    expect(row).toMatchObject({ wakeAt: null });
  });

  it('run twice at once claims no row twice, and misses none', async () => {
    const { account } = await createTestAccount(system.database, { funds: { USD: 10_000_000n } });
    const ids: string[] = [];
    for (let count = 0; count < 20; count += 1) {
      ids.push((await requestPayout(system.database, account.id)).id);
    }
    await makeDue(...ids);
    await system.database.begin(async (sql) => {
      const first = await claimOverduePayouts(sql);
      expect(first.map(({ id }) => id).sort()).toEqual([...ids].sort());
      // The other query neither waits for the rows that the first has locked nor returns them.
      expect(await claimOverduePayouts(system.database)).toEqual([]);
    });
    expect(await claimOverduePayouts(system.database)).toEqual([]);

    await makeDue(...ids);
    await Promise.all([run('sweep'), run('sweep')]);
    for (const id of ids) {
      await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe('settled');
      expect(await journalOf(system, id)).toEqual(['transfer', 'settled']);
    }
  });
});
