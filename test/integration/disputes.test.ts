import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { showPayout } from '../../src/cli/showPayout.js';
import { connectDatabase } from '../../src/db/client.js';
import type { OperatorCommand } from '../../src/domain/operator.js';
import { eventually } from '../assertions/eventually.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { approve, byTwo, called, command, operate, shown } from '../fixtures/operators.js';
import { openPayer, type Payer, rowOf, untilParked, wake } from '../fixtures/payer.js';
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
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await cli.database.end({ timeout: 5 });
  await system.stop();
});

/** Waits until every report of the bank about a payout is applied. */
const untilApplied = (id: string) =>
  eventually(`the facts of ${id} are applied`, 20_000, async () => {
    const open = await system.database`
      select from rail_inbox i join payouts p on p.id = i.payout_id
       where p.id = ${id} and i.applied_at is null and i.id <> all (coalesce(p.applied_facts, '{}'))`;
    return open.length === 0 || undefined;
  });

const lossOf = (sum: string) => ({ postings: `suspense:EUR:-${sum},losses:EUR:${sum}` });

describe('a payout in flight that the bank reports with another amount', () => {
  async function disputed(): Promise<{ payer: Payer; id: string }> {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: never settle');
    await untilStatus(payer.client, id, 'sent');
    const row = await rowOf(system, id);
    const amount = String((row.receiveMinor ?? 0n) - 1_000n);
    await callBack(system, [newsOf(row, { type: 'settled', amount })]);
    const parked = await untilParked(system, id);
    expect(parked).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
    return { payer, id };
  }

  it('is not moved by the next report, even after a correction', async () => {
    const { payer, id } = await disputed();
    await byTwo(cli, id, 'correct', lossOf('10.00'));
    await callBack(system, [newsOf(await rowOf(system, id), { type: 'rejected', code: 'AC04' })]);
    await untilApplied(id);
    expect(await rowOf(system, id)).toMatchObject({
      status: 'sent',
      attentionReason: 'amount_mismatch',
    });
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 10_000n });
  });

  it('stays in dispute after suspense left by a correction is cleared', async () => {
    const { id } = await disputed();
    await byTwo(cli, id, 'correct', lossOf('10.00'));
    await byTwo(cli, id, 'clear-suspense', { charge: 'house' });
    expect(await rowOf(system, id)).toMatchObject({
      status: 'sent',
      attentionReason: 'amount_mismatch',
    });
  });
});

it('a payout is not settled without evidence, whoever records the request', async () => {
  const payer = await openPayer(system);
  const id = await payer.send('simulate: never settle');
  await untilStatus(payer.client, id, 'sent');
  await system.database`
    update payouts set settle_by = now() - interval '1 hour' where id = ${id}`;
  await wake(system, id);
  await untilParked(system, id);
  const malformed: OperatorCommand = JSON.parse('{"kind":"markSettled"}');
  expect(await command(cli, id, malformed)).toMatchObject({ outcome: 'refused' });
});

it('free text of the bank, which may contain personal data, is not stored', async () => {
  const payer = await openPayer(system);
  const id = await payer.send('simulate: never settle');
  await untilStatus(payer.client, id, 'sent');
  const reason = 'The account is of Zaphod Quuxington';
  const report = { type: 'rejected', code: 'AC04', reason } as const;
  const row = await rowOf(system, id);
  await callBack(system, [newsOf(row, report)]);
  await untilStatus(payer.client, id, 'failed');
  const stored = await system.database`select fact from rail_inbox where payout_id = ${id}`;
  const sum = { amountMinor: String(row.receiveMinor), currency: 'EUR' };
  expect(stored).toEqual([{ fact: { kind: 'rejected', code: 'AC04', ...sum } }]);
});

describe('corrections of a payout that has settled', () => {
  async function settled(): Promise<string> {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    await untilStatus(payer.client, id, 'settled');
    await system.temporal.workflow.getHandle(id).result();
    return id;
  }

  it('are all carried out if they were proposed together', async () => {
    const id = await settled();
    const back = { postings: 'suspense:EUR:10.00,return_costs:EUR:-10.00' };
    const proposed = [
      await operate(cli, id, 'correct', lossOf('10.00')),
      await operate(cli, id, 'correct', back),
    ];
    for (const { action } of proposed) {
      const { isCarriedOut, printed } = await approve(cli, id, action);
      expect(isCarriedOut, printed).toBe(true);
    }
  });

  it('suggest another correction if they leave suspense above zero', async () => {
    const id = await settled();
    await byTwo(cli, id, 'correct', { postings: 'suspense:EUR:10.00,losses:EUR:-10.00' });
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: 'paid_after_release' });
    const confirmed = await operate(cli, id, 'settle', { evidence: 'it is' });
    expect(confirmed.printed).toContain('correct for anything else');
    const text = await shown(() => showPayout(called(system, id)));
    expect(text).toContain(`corridor payouts correct ${id}`);
    await byTwo(cli, id, 'correct', lossOf('10.00'));
    expect(await rowOf(system, id)).toMatchObject({ attentionReason: null });
  });
});

describe('a payout that the bank paid after it ended', () => {
  async function expectNoRetry(payer: Payer, id: string): Promise<void> {
    const { beneficiaryId } = await rowOf(system, id);
    const form = { source_currency: 'USD', amount: '10000', beneficiary: beneficiaryId };
    const retried = await payer.client('POST /v1/payouts', { form: { ...form, retry_of: id } });
    expect(retried).toMatchObject({ status: 422, body: { code: 'retry_refused' } });
  }

  it('is never retried, even after its case is closed, if it was refused', async () => {
    const payer = await openPayer(system);
    const id = textOf(await payer.ask('more than there is', { amount: '200000' }), 'payout');
    const report = { type: 'settled', amount: '160000', currency: 'EUR' } as const;
    await callBack(system, [newsOf(await rowOf(system, id), report)]);
    await untilParked(system, id);
    await byTwo(cli, id, 'fail');
    await expectNoRetry(payer, id);
  });

  it('is never retried if the bank rejected it and then paid another amount', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: reject AC04');
    await untilStatus(payer.client, id, 'failed');
    const row = await rowOf(system, id);
    const amount = String((row.receiveMinor ?? 0n) - 1n);
    await callBack(system, [newsOf(row, { type: 'settled', amount })]);
    expect(await untilParked(system, id)).toMatchObject({ attentionReason: 'amount_mismatch' });
    await byTwo(cli, id, 'fail');
    await expectNoRetry(payer, id);
  });
});
