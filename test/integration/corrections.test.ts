import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listPayouts } from '../../src/cli/payouts.js';
import { showPayout } from '../../src/cli/showPayout.js';
import { connectDatabase } from '../../src/db/client.js';
import { eventually } from '../assertions/eventually.js';
import { expectedPostings, type Postings, postingsOf } from '../assertions/postings.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { approve, byTwo, called, command, operate, shown } from '../fixtures/operators.js';
import { openPayer, type Payer, rowOf, untilParked, wake } from '../fixtures/payer.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
/** The command line connects with fewer privileges than the owner. */
let cli: Pick<TestSystem, 'database' | 'temporal'>;

beforeAll(async () => {
  system = await startSystem();
  const url = system.urls.operator;
  const database = connectDatabase({ url, poolSize: 2, applicationName: 'test-cli' });
  cli = { database, temporal: system.temporal };
});
afterAll(async () => {
  // Whatever the tests did, every currency must balance.
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await cli.database.end({ timeout: 5 });
  await system.stop();
});

type Paid = { readonly payer: Payer; readonly id: string; readonly receiveMinor: bigint };

/** A payout of 100.00 USD that the bank rejected and then paid nevertheless. */
async function paidAfterRelease(): Promise<Paid> {
  const payer = await openPayer(system);
  const id = await payer.send('simulate: reject AC04');
  await untilStatus(payer.client, id, 'failed');
  await callBack(system, [newsOf(await rowOf(system, id), { type: 'settled' })]);
  const row = await untilParked(system, id);
  expect(row).toMatchObject({ status: 'failed', attentionReason: 'paid_after_release' });
  return { payer, id, receiveMinor: row.receiveMinor ?? 0n };
}

/** A payout that the bank never settled, but that an operator marked as settled. */
async function settledByMistake(): Promise<Paid> {
  const payer = await openPayer(system);
  const id = await payer.send('simulate: never settle');
  await untilStatus(payer.client, id, 'sent');
  await system.database`
    update payouts set settle_by = now() - interval '1 hour' where id = ${id}`;
  await wake(system, id);
  await untilParked(system, id);
  const settled = await operate(cli, id, 'settle', { evidence: 'MT103 of another payment' });
  expect(settled.isCarriedOut, settled.printed).toBe(true);
  const { receiveMinor } = await rowOf(system, id);
  return { payer, id, receiveMinor: receiveMinor ?? 0n };
}

/** A payout of 100.00 USD that settled and was returned. */
async function returned(): Promise<Pick<Paid, 'payer' | 'id'>> {
  const payer = await openPayer(system);
  const id = await payer.send('an ordinary payout');
  await untilStatus(payer.client, id, 'settled');
  await callBack(system, [newsOf(await rowOf(system, id), { type: 'returned', code: 'AC04' })]);
  await untilStatus(payer.client, id, 'returned');
  return { payer, id };
}

async function entryOf(id: string, kind: string): Promise<string> {
  const [row] = await system.database<{ id: bigint }[]>`
    select id from ledger_entries where payout_id = ${id} and kind = ${kind}`;
  return String(row?.id);
}

async function suspenseOf(id: string): Promise<bigint> {
  const [row] = await system.database<{ sumMinor: bigint }[]>`
    select coalesce(sum(p.amount_minor), 0)::bigint as sum_minor
      from ledger_entries e join ledger_postings p on p.entry_id = e.id
      join ledger_accounts a on a.id = p.ledger_account_id and a.kind = 'suspense'
     where e.payout_id = ${id}`;
  return row?.sumMinor ?? 0n;
}

/** The sum of a payout's entries by account, without zero sums. */
async function balancesOf(id: string): Promise<Postings> {
  const rows = await system.database<{ account: string; minor: bigint }[]>`
    select a.kind || ':' || p.currency as account, sum(p.amount_minor)::bigint as minor
      from ledger_entries e
      join ledger_postings p on p.entry_id = e.id
      join ledger_accounts a on a.id = p.ledger_account_id
     where e.payout_id = ${id} group by 1 having sum(p.amount_minor) <> 0`;
  return Object.fromEntries(rows.map(({ account, minor }) => [account, minor]));
}

let days = 0;

/** The reconciliation breaks of a payout once the bank's closed statements show these amounts. */
async function breaksOf(
  id: string,
  bank: { readonly debit?: bigint; readonly credit?: readonly bigint[] },
): Promise<readonly object[]> {
  const lines = [
    ...(bank.debit === undefined ? [] : [['debit', bank.debit] as const]),
    ...(bank.credit ?? []).map((minor) => ['credit', minor] as const),
  ];
  // Each call uses another day, because a closed day never changes.
  days += 1;
  for (const [index, [direction, minor]] of lines.entries()) {
    await system.database`
      insert into statement_entries (rail, bank_reference, direction, rail_key, currency,
        amount_minor, booked_at, statement_date, line)
      values ('sandbox', ${`SBX-${id}`}, ${direction}, ${id}, 'EUR', ${String(minor)}::bigint,
        now(), current_date + ${days}::int, ${index + 1})`;
  }
  await system.database`
    insert into statements (rail, statement_date) values ('sandbox', current_date + ${days}::int)`;
  return system.database`select direction, kind from statement_breaks where payout_id = ${id}`;
}

async function sendBatch(payer: Payer): Promise<{ readonly id: string }> {
  const stored = textOf(await payer.client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const item = { source_currency: 'USD', amount: '1000', beneficiary: stored };
  return {
    id: textOf(await payer.client('POST /v1/batches', { json: { payouts: [item] } }), 'id'),
  };
}

const euros = (minor: bigint) => `${minor / 100n}.${String(minor % 100n).padStart(2, '0')}`;

describe('money in suspense', () => {
  it('cannot be cleared by one operator, even acting twice', async () => {
    const { id } = await paidAfterRelease();
    const confirmed = await operate(cli, id, 'fail');
    expect(confirmed.isCarriedOut, confirmed.printed).toBe(false);
    expect(confirmed.printed).toContain('clear-suspense');
    const proposed = await operate(cli, id, 'clear-suspense', { charge: 'house' });
    expect(proposed.printed).toMatch(/^proposed: .*losses -\d+\.\d\d EUR/m);
    const proposal = proposed.action;
    const alone = await operate(cli, id, 'approve', { operator: 'grace', proposal });
    expect(alone.printed).toMatch(/^refused: .*another operator/m);
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: 'paid_after_release' });
    expect(await postingsOf(system.database, id)).not.toHaveProperty('suspense_clear');
  });

  it('is never paid again by a retry, even after it is cleared', async () => {
    const { payer, id } = await paidAfterRelease();
    const { beneficiaryId: beneficiary } = await rowOf(system, id);
    const form = { source_currency: 'USD', amount: '1000', beneficiary, retry_of: id };
    const refused = { status: 422, body: { code: 'retry_refused' } };
    expect(await payer.client('POST /v1/payouts', { form })).toMatchObject(refused);
    await byTwo(cli, id, 'clear-suspense', { charge: 'house' });
    expect(await rowOf(system, id)).toMatchObject({ status: 'failed', attentionReason: null });
    expect(await payer.client('POST /v1/payouts', { form })).toMatchObject(refused);
  });

  it('that was returned is booked, and the payout needs no attention any more', async () => {
    const { payer, id, receiveMinor } = await paidAfterRelease();
    await callBack(system, [newsOf(await rowOf(system, id), { type: 'returned', code: 'AC04' })]);
    const row = await eventually('the return is noted', 20_000, async () => {
      const found = await rowOf(system, id);
      return found.attentionDetail?.includes('returned') === true ? found : undefined;
    });
    expect(row.attentionDetail).toContain('corridor payouts late-return');
    const tooMuch = await operate(cli, id, 'late-return', { amount: euros(receiveMinor + 1n) });
    expect(tooMuch.printed).toContain(`Only ${euros(receiveMinor)} EUR`);

    await byTwo(cli, id, 'late-return', { amount: euros(receiveMinor) });
    const { late_return } = await postingsOf(system.database, id);
    expect(late_return).toEqual({
      'rail_settlement:EUR': -receiveMinor,
      'suspense:EUR': receiveMinor,
    });
    expect(await balancesOf(id)).toEqual({});
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
    expect(await rowOf(system, id)).toMatchObject({ status: 'failed', attentionReason: null });
    await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe('failed');
    expect(await breaksOf(id, { debit: receiveMinor, credit: [receiveMinor] })).toEqual([]);
  });

  it('that was returned in part needs attention until the house covers the rest', async () => {
    const { payer, id, receiveMinor } = await paidAfterRelease();
    await byTwo(cli, id, 'late-return', { amount: euros(receiveMinor - 150n) });
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: 'paid_after_release' });
    const charged = await operate(cli, id, 'clear-suspense', { charge: 'customer' });
    expect(charged.printed).toContain('Only 1.50 EUR');
    await byTwo(cli, id, 'clear-suspense', { charge: 'house' });
    expect(await balancesOf(id)).toEqual({ 'rail_settlement:EUR': 150n, 'losses:EUR': -150n });
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: null });
    expect(await breaksOf(id, { debit: receiveMinor, credit: [receiveMinor - 150n] })).toEqual([]);
    const again = await operate(cli, id, 'clear-suspense', { charge: 'house' });
    expect(again.printed).toContain('nothing to book');
  });

  it('that two operators propose to clear is cleared once, and the other proposal is not offered', async () => {
    const { id } = await paidAfterRelease();
    const first = await operate(cli, id, 'clear-suspense', { charge: 'house' });
    const second = await operate(cli, id, 'clear-suspense', { charge: 'customer' });
    const offered = await shown(() => showPayout(called(cli, id)));
    expect(offered).toContain(`--proposal ${first.action}`);
    expect(offered).toContain(`--proposal ${second.action}`);
    const listed = async () => {
      const output = await shown(() => listPayouts(called(cli, '', { status: 'failed' })));
      return output.split(/\n(?=po_)/).find((line) => line.startsWith(id));
    };
    expect(await listed()).toContain('waits for approval');
    expect((await approve(cli, id, first.action)).isCarriedOut).toBe(true);
    expect(await shown(() => showPayout(called(cli, id)))).not.toContain('payouts approve');
    expect(await listed()).not.toContain('waits for approval');
    expect((await approve(cli, id, second.action)).isCarriedOut).toBe(false);
  });

  it('can be charged to a customer who has the money, as if it had settled', async () => {
    const { payer, id, receiveMinor } = await paidAfterRelease();
    await byTwo(cli, id, 'clear-suspense', { charge: 'customer' });
    const row = await rowOf(system, id);
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 0n });
    const expected = expectedPostings(row);
    const { settle } = expected;
    const sums = await balancesOf(id);
    expect(sums).toMatchObject({
      'available:USD': -10_000n,
      'fee_revenue:USD': row.feeMinor,
      'fx_position:EUR': settle['fx_position:EUR'],
      'rail_settlement:EUR': receiveMinor,
    });
    expect(sums).not.toHaveProperty(['suspense:EUR']);
    expect(row).toMatchObject({ status: 'failed', attentionReason: null });
    const listed = await payer.client(
      `GET /v1/balance_transactions?payout=${id}&type=suspense_clear`,
    );
    expect(JSON.stringify(listed.body)).toContain('"amount":"-');
  });

  it('cannot be charged to a customer who has spent the money', async () => {
    const { payer, id } = await paidAfterRelease();
    expect((await payer.ask('simulate: never settle', { amount: '95000' })).status).toBe(201);
    const before = await payer.balance();
    const proposed = await operate(cli, id, 'clear-suspense', { charge: 'customer' });
    expect(proposed.printed).toMatch(/^refused: .*balance does not cover it/m);
    expect(await payer.balance()).toEqual(before);
  });
});

describe('a correction', () => {
  it('undoes a settlement that never happened, and the customer is notified', async () => {
    const { payer, id } = await settledByMistake();
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 0n });
    const entry = await entryOf(id, 'settle');
    await byTwo(cli, id, 'reverse', { entry });
    expect(await balancesOf(id)).toEqual({});
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
    const answer = await payer.client(`GET /v1/payouts/${id}`);
    expect(answer.body).toMatchObject({ status: 'returned', status_reason: 'corrected' });
    expect((await payer.eventsOf(id)).slice(-1)).toEqual(['payout.returned']);
    // The bank shows nothing, and now the ledger shows nothing either.
    expect(await breaksOf(id, {})).toEqual([]);
    const again = await operate(cli, id, 'reverse', { entry });
    expect(again.printed).toContain('is not an entry of this payout that can be reversed');
  });

  it('that undid a settlement does not hide a later report that the rail paid', async () => {
    const { id, receiveMinor } = await settledByMistake();
    const entry = await entryOf(id, 'settle');
    await byTwo(cli, id, 'reverse', { entry });
    await callBack(system, [newsOf(await rowOf(system, id), { type: 'settled' })]);
    await untilParked(system, id);
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: 'paid_after_release' });
    expect(await balancesOf(id)).toEqual({
      'rail_settlement:EUR': receiveMinor,
      'suspense:EUR': -receiveMinor,
    });
  });

  it('that undid a return first does not hide it either', async () => {
    const { payer, id } = await returned();
    await byTwo(cli, id, 'reverse', { entry: await entryOf(id, 'return') });
    await byTwo(cli, id, 'reverse', { entry: await entryOf(id, 'settle') });
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
    const row = await rowOf(system, id);
    await callBack(system, [newsOf(row, { type: 'settled' })]);
    await expect(untilParked(system, id)).resolves.toMatchObject({
      status: 'returned',
      attentionReason: 'paid_after_release',
    });
    expect(await suspenseOf(id)).toBe(-(row.receiveMinor ?? 0n));
  });

  it('refunds nothing twice: a settlement is not reversed before its return', async () => {
    const { payer, id } = await returned();
    const entry = await entryOf(id, 'settle');
    const before = await payer.balance();
    const refused = await operate(cli, id, 'reverse', { entry });
    expect(refused.printed).toMatch(/^refused: .*reverse the return first/m);
    // Nor if the return arrives between the proposal and the approval.
    const other = await openPayer(system);
    const late = await other.send('an ordinary payout');
    await untilStatus(other.client, late, 'settled');
    const proposed = await operate(cli, late, 'reverse', { entry: await entryOf(late, 'settle') });
    await callBack(system, [newsOf(await rowOf(system, late), { type: 'returned', code: 'AC04' })]);
    await untilStatus(other.client, late, 'returned');
    const approved = await approve(cli, late, proposed.action);
    expect(approved.printed).toMatch(/^refused: .*reverse the return first/m);
    expect(await payer.balance()).toEqual(before);
    expect(await other.balance()).toEqual(before);
  });

  it('that puts money back in suspense makes the payout need attention again', async () => {
    const { id, receiveMinor } = await paidAfterRelease();
    await byTwo(cli, id, 'clear-suspense', { charge: 'house' });
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: null });
    await byTwo(cli, id, 'reverse', { entry: await entryOf(id, 'suspense_clear') });
    expect(await suspenseOf(id)).toBe(-receiveMinor);
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: 'paid_after_release' });
  });

  it('of a late payment is mentioned when the bank reports the payment again', async () => {
    const { id } = await paidAfterRelease();
    await byTwo(cli, id, 'reverse', { entry: await entryOf(id, 'late_payment') });
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: null });
    await callBack(system, [newsOf(await rowOf(system, id), { type: 'settled' })]);
    const parked = await untilParked(system, id);
    expect(parked.attentionReason).toBe('contradiction');
    expect(parked.attentionDetail).toContain('whose late payment two people have reversed');
    expect(await suspenseOf(id)).toBe(0n);
  });

  it('of an item that its batch settled is booked as well', async () => {
    const payer = await openPayer(system);
    const { id: batch } = await sendBatch(payer);
    const [item] = await eventually('a settled item', 30_000, async () => {
      const rows = await system.database<{ id: string; driver: string }[]>`
        select id, driver from payouts where batch_id = ${batch} and status = 'settled'`;
      return rows.length > 0 ? rows : undefined;
    });
    const id = item?.id ?? '';
    expect(item?.driver).not.toBe(id);
    const entry = await entryOf(id, 'settle');
    await byTwo(cli, id, 'reverse', { entry });
    expect(await balancesOf(id)).toEqual({});
  });

  it('that was a mistake is reversed, and the bank and the ledger agree again', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    await untilStatus(payer.client, id, 'settled');
    const paid = async () => {
      const rows = await system.database<{ direction: string; minor: bigint }[]>`
        select direction, sum(amount_minor)::bigint as minor from ledger_movements
         where payout_id = ${id} group by direction having sum(amount_minor) <> 0`;
      return rows.map(({ direction, minor }) => [direction, minor]);
    };
    const before = await paid();
    await byTwo(cli, id, 'correct', { postings: 'rail_settlement:EUR:0.01,losses:EUR:-0.01' });
    expect(await paid()).not.toEqual(before);
    await byTwo(cli, id, 'reverse', { entry: await entryOf(id, 'correction') });
    expect(await paid()).toEqual(before);
  });

  it('books a second return, and each of several commands once', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    await untilStatus(payer.client, id, 'settled');
    const row = await rowOf(system, id);
    const receiveMinor = row.receiveMinor ?? 0n;
    const returned = (minor: bigint) =>
      callBack(system, [newsOf(row, { type: 'returned', amount: String(minor), code: 'AC04' })]);
    await returned(receiveMinor - 300n);
    await untilStatus(payer.client, id, 'returned');
    await returned(300n);
    const parked = await untilParked(system, id);
    expect(parked).toMatchObject({ status: 'returned', attentionReason: 'contradiction' });
    expect(parked.attentionDetail).toContain('corridor payouts correct');

    const postings = 'rail_settlement:EUR:-1.50,return_costs:EUR:1.50';
    await byTwo(cli, id, 'correct', { postings });
    await byTwo(cli, id, 'correct', { postings });
    expect(await balancesOf(id)).not.toHaveProperty(['return_costs:EUR']);
    const kinds = await system.database<{ kind: string }[]>`
      select kind from ledger_entries where payout_id = ${id} order by id`;
    expect(kinds.map(({ kind }) => kind).slice(-2)).toEqual(['correction', 'correction']);
    expect(
      await breaksOf(id, { debit: receiveMinor, credit: [receiveMinor - 300n, 300n] }),
    ).toEqual([]);
    const confirmed = await operate(cli, id, 'settle', { evidence: 'both returns are booked' });
    expect(confirmed.isCarriedOut, confirmed.printed).toBe(true);
    expect(await rowOf(system, id)).toMatchObject({ status: 'returned', attentionReason: null });
  });

  it('is carried out once, however often it is approved', async () => {
    const { id, receiveMinor } = await paidAfterRelease();
    const { action: proposal } = await operate(cli, id, 'late-return', { amount: '1' });
    const approvals = await Promise.all(
      ['ada', 'barbara', 'edith'].map((operator) =>
        command(cli, id, { kind: 'approve', proposal }, operator),
      ),
    );
    expect(approvals.filter(({ outcome }) => outcome === 'done')).toHaveLength(1);
    expect(await balancesOf(id)).toMatchObject({ 'suspense:EUR': 100n - receiveMinor });
  });

  it.each([
    ['late-return', { amount: '0' }, '--amount expects a sum of EUR above zero'],
    ['late-return', { amount: '-1' }, '--amount expects a sum of EUR above zero'],
    ['late-return', { amount: '1.234' }, 'above zero, such as 10.00; EUR has 2 decimals.'],
    ['late-return', {}, '--amount is missing'],
    ['clear-suspense', { charge: 'nobody' }, '--charge expects customer or house'],
    ['reverse', {}, '--entry is missing'],
    ['reverse', { entry: '0' }, 'is not an entry of this payout that can be reversed'],
    [
      'correct',
      { postings: 'losses:EUR:1' },
      '--postings expects a sum of zero in EUR, not 100 minor units.',
    ],
    ['correct', { postings: 'loss:EUR:1,held:EUR:-1' }, '--postings expects account:CURRENCY'],
    ['correct', { postings: 'losses:EUX:1' }, '--postings expects account:CURRENCY:amount'],
    ['correct', { postings: 'losses:EUR:1:2' }, '--postings expects account:CURRENCY:amount'],
    ['correct', { postings: 'losses:EUR:0' }, '--postings expects account:CURRENCY:amount'],
    ['correct', { postings: '' }, '--postings is missing'],
  ])('with wrong flags is refused with what was expected: %s %j', async (verb, flags, expected) => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: never settle');
    const { isCarriedOut, printed } = await operate(cli, id, verb, flags);
    expect([isCarriedOut, printed]).toEqual([false, expect.stringContaining(expected)]);
    expect(Object.keys(await postingsOf(system.database, id))).toEqual(['accept']);
  });
});
