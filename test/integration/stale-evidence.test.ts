import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { acceptTogether } from '../../src/activities/acceptance.js';
import { exactlyOne, transaction } from '../../src/db/client.js';
import { listBalances } from '../../src/db/ledger.js';
import { openProposals } from '../../src/db/operatorActions.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import type { OperatorCommand } from '../../src/domain/operator.js';
import type { RailReport } from '../../src/domain/railReport.js';
import type { LookupAnswer, Rail } from '../../src/rails/rail.js';
import { createRails } from '../../src/rails/registry.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { requested } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { payoutOf, rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  untilLockWaits,
} from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

/** A rail that lets something happen while it is asked about an order. */
class HookedRail extends QuietRail {
  hook: (() => Promise<unknown>) | undefined;
  answer: (key: string) => LookupAnswer = (key) => ({ key, kind: 'not_found' });
  override readonly lookup: Rail['lookup'] = async (keys) => {
    const hook = this.hook;
    this.hook = undefined;
    await hook?.();
    return keys.map(this.answer);
  };
}

async function requestedPayout(approvalAboveMinor?: bigint) {
  const rail = new HookedRail();
  const activities = payoutActivities(test.worker, rail, approvalAboveMinor);
  const { account } = await createTestAccount(test.database);
  const { id } = await requestPayout(test.database, account.id);
  const row = () => payoutOf(test.database, account.id, id);
  const held = async () => {
    const balances = await listBalances(test.database, account.id);
    return balances.find(({ currency }) => currency === 'USD')?.heldMinor;
  };
  return { rail, activities, id, target: { driver: id, ids: [id] }, row, held };
}

async function sentPayout(approvalAboveMinor?: bigint) {
  const payout = await requestedPayout(approvalAboveMinor);
  const { activities, rail, target, id, row } = payout;
  await activities.decidePayouts({ ...target, workflowAgeMs: 0 });
  await attempt(() => activities.submitPayouts(target));
  const amountMinor = (await row()).receiveMinor ?? 0n;
  /** A report of a part of the amount, as a bank in its callback or in its answer to a look-up makes it. */
  const settled = (minor: bigint) => ({ kind: 'settled', amountMinor: minor, currency }) as const;
  const returned = (minor: bigint) =>
    ({ kind: 'returned', amountMinor: minor, currency, code: 'AC04', reason: '' }) as const;
  const report = (name: string, said: RailReport) =>
    storeRailEvents(test.database, 'sandbox', [{ id: `${name}:${id}`, key: id, report: said }]);
  const execute = async (command: OperatorCommand, operator?: string) => {
    const input = await requested(test, id, command, operator);
    const run = () => attempt(() => activities.executeCommand(input)).then(({ result }) => result);
    return { first: await run().catch(String), again: run };
  };
  return { ...payout, rail, amountMinor, settled, returned, report, execute };
}

const currency = 'EUR';
const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
const fail = { kind: 'failAndRelease', statementDate: null } as const;

describe('a report that arrives while a command is evaluated', () => {
  it.each([
    ['few', 2],
    ['many', 40],
  ] as const)('forces a new evaluation: %s earlier findings', async (_name, findings) => {
    const payout = await sentPayout();
    const { activities, amountMinor, settled, returned, report, target, row } = payout;
    for (let n = 1; n <= findings; n += 1) {
      await report(`m${n}`, settled(amountMinor - BigInt(n)));
    }
    await activities.applyRailEvents(target);
    expect(await row()).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
    // While the operator's `settle` queries the bank, a callback reports that all of it was returned.
    payout.rail.hook = async () => {
      await report('r', returned(amountMinor));
      await activities.applyRailEvents(target);
    };
    const { first } = await payout.execute(settle);
    expect(first).toContain('case changed meanwhile');
    expect(await row()).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
  });

  // The payout's workflow waits for the command, so nothing else applies the inbox.
  it('is only added to the findings of a dispute that the command closes', async () => {
    const payout = await sentPayout();
    const { activities, amountMinor, returned, report, target, row, held } = payout;
    const part = returned(amountMinor / 10n);
    await report('r', part);
    await activities.applyRailEvents(target);
    const holdMinor = await held();
    expect(await row()).toMatchObject({ status: 'sent', attentionReason: 'return_short' });
    payout.rail.answer = (key) => ({ key, ...part });
    payout.rail.hook = () => report('x', { kind: 'rejected', code: 'AC01' });
    const { first, again } = await payout.execute(fail);
    expect(first).toContain('case changed meanwhile');
    expect([(await row()).status, await held()]).toEqual(['sent', holdMinor]);
    expect(await again()).toMatchObject({
      outcome: 'done',
      detail: expect.stringMatching(/^Returned; the customer got the net amount back/),
    });
    expect(await row()).toMatchObject({ status: 'returned', attentionReason: null });
  });

  it('does not release what the bank says at the same time that it has returned', async () => {
    const payout = await sentPayout();
    const { activities, amountMinor, returned, report, id, row } = payout;
    const late = { reason: 'settle_by_passed', detail: 'late' } as const;
    await attempt(() => activities.parkPayout({ driver: id, id, ...late }));
    payout.rail.answer = (key) => ({ key, ...returned(amountMinor) });
    payout.rail.hook = () => report('x', { kind: 'rejected', code: 'AC01' });
    expect((await payout.execute({ kind: 'retryNow' })).first).toMatchObject({ outcome: 'done' });
    expect(await row()).toMatchObject({ status: 'returned', attentionReason: 'contradiction' });
  });

  it('and settles nothing leaves a settlement refused, with the reason', async () => {
    const payout = await sentPayout();
    const { activities, amountMinor, settled, id, row } = payout;
    const late = { reason: 'settle_by_passed', detail: 'late' } as const;
    await attempt(() => activities.parkPayout({ driver: id, id, ...late }));
    payout.rail.hook = () => payout.report('m', settled(amountMinor / 2n));
    const { first } = await payout.execute(settle);
    expect(first).toMatchObject({
      outcome: 'refused',
      detail: expect.stringMatching(/^The payout is sent\. It needs an operator again:/),
    });
    expect(await row()).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
  });
});

it('a proposal ends with the reason for which it was made', async () => {
  const payout = await sentPayout(0n);
  const { activities, amountMinor, returned, report, id, target, row } = payout;
  const late = { reason: 'settle_by_passed', detail: 'late' } as const;
  await attempt(() => activities.parkPayout({ driver: id, id, ...late }));
  const proposed = await payout.execute({ ...fail, statementDate: '2026-01-05' });
  expect(proposed.first).toMatchObject({ outcome: 'proposed' });
  const [open] = await openProposals(test.database, [id]);
  const proposal = exactlyOne(open).id;
  await report('r', returned(amountMinor / 10n));
  await activities.applyRailEvents(target);
  const approved = await payout.execute({ kind: 'approve', proposal }, 'barbara');
  expect(approved.first).toMatchObject({
    outcome: 'refused',
    detail: `There is no open proposal ${proposal} for ${id}.`,
  });
  expect(await row()).toMatchObject({ status: 'sent', attentionReason: 'return_short' });
});

it('a payout that is accepted while it is canceled as undecided gives its hold back', async () => {
  const { activities, rail, id, row, held } = await requestedPayout();
  const found = { reason: 'unexpected_failure', detail: 'a bug' } as const;
  await attempt(() => activities.parkPayout({ driver: id, id, ...found }));
  const input = await requested(test, id, { kind: 'cancel' });
  const cancel = () => attempt(() => activities.executeCommand(input));
  let canceled: Promise<unknown> | undefined;
  await transaction(test.worker, async (sql) => {
    await acceptTogether(sql, { rails: createRails([rail]), rateMaximumAgeMs }, [id], 0);
    canceled = cancel().catch(String);
    await untilLockWaits(test.database, 'the command waits for the decision', 20_000);
  });
  expect(await canceled).toContain('case changed meanwhile');
  expect(await cancel()).toMatchObject({ result: { outcome: 'done' } });
  expect([(await row()).status, await held()]).toEqual(['canceled', 0n]);
});
