import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { examine } from '../../src/cli/doctor.js';
import { listPayouts } from '../../src/cli/payouts.js';
import { showPayout } from '../../src/cli/showPayout.js';
import { listWebhooks } from '../../src/cli/webhooks.js';
import { listActions } from '../../src/db/operatorActions.js';
import { findPayoutById } from '../../src/db/payouts.js';
import { wakePayout } from '../../src/temporal/workflowCalls.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { called, command, operate, shown } from '../fixtures/operators.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

describe('operators', () => {
  let system: TestSystem;
  let beneficiary: string;

  beforeAll(async () => {
    system = await startSystem();
    const stored = await system.client('POST /v1/beneficiaries', {
      form: {
        type: 'individual',
        name: 'Ada Lovelace',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE89370400440532013000',
      },
    });
    beneficiary = textOf(stored, 'id');
    await system.client('POST /v1/test/fund', { form: { currency: 'USD', amount: '20000000' } });
  });
  afterAll(() => system.stop());

  async function send(reference: string, amount = '10000'): Promise<string> {
    const answer = await system.client('POST /v1/payouts', {
      form: { source_currency: 'USD', amount, beneficiary, reference },
    });
    expect(answer.status).toBe(201);
    return textOf(answer, 'id');
  }

  /** Parks a payout by moving its settle-by time into the past, and waits until it is parked. */
  async function park(reference: string, amount?: string): Promise<string> {
    const id = await send(reference, amount);
    await untilStatus(system.client, id, 'sent');
    await system.database`
      update payouts set settle_by = now() - interval '2 days',
             requested_at = now() - interval '8 days', last_sent_at = now() - interval '8 days',
             submit_started_at = now() - interval '8 days' where id = ${id}`;
    await wake(id);
    await expect
      .poll(async () => (await findPayoutById(system.database, id))?.attentionReason, {
        timeout: 20_000,
      })
      .toBe('settle_by_passed');
    return id;
  }

  async function wake(id: string): Promise<void> {
    const row = await findPayoutById(system.database, id);
    if (row === undefined) throw new Error(`There is no payout ${id}.`);
    await wakePayout(system.temporal, row);
  }

  it('release a payout that the closed statements prove was never paid', async () => {
    const id = await park('simulate: never settle');
    const release = { kind: 'failAndRelease', statementDate: null } as const;
    const withoutProof = await operate(system, id, 'fail');
    expect(withoutProof.isCarriedOut).toBe(false);
    // Refused commands are no longer suggested, and suggested ones are not refused.
    expect(withoutProof.printed).toContain(`corridor payouts fail ${id} --statement-date`);
    expect(withoutProof.printed).not.toContain(`corridor payouts fail ${id} --reason`);
    const yesterday = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
    const released = await command(system, id, { ...release, statementDate: yesterday });
    expect(released).toMatchObject({ outcome: 'done' });
    await untilStatus(system.client, id, 'failed');
    const actions = await listActions(system.database, id);
    expect(actions.map((action) => [action.operator, action.outcome])).toEqual([
      ['grace', 'refused'],
      ['grace', 'done'],
    ]);
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it.each(['infinity', '2026-02-31T12:00:00Z', '2099-01-01T00:00:00Z'])(
    'extend to no time that the command line would refuse, whoever records it: %s',
    async (until) => {
      const id = await park('simulate: never settle');
      const before = await findPayoutById(system.database, id);
      const extended = await command(system, id, { kind: 'extendDeadline', until });
      expect(extended).toMatchObject({ outcome: 'refused' });
      expect(extended.detail).toMatch(/^--until expects /);
      expect(await findPayoutById(system.database, id)).toEqual(before);
    },
  );

  it('need a second operator above the configured amount', async () => {
    const id = await park('simulate: never settle', '9000000');
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    const proposed = await operate(system, id, 'settle', { evidence: settle.evidence });
    expect(proposed.printed).toContain(
      `corridor payouts approve ${id} --proposal ${proposed.action} --reason`,
    );
    // The proposer is not shown commands that would be refused, and everyone sees the open proposal.
    expect(proposed.printed).toMatch(/^proposed: Another operator has to approve it\.$/m);
    expect(proposed.printed).toContain('\nNext, for another operator:\n');
    expect(proposed.printed).not.toContain('Available now:');
    const listed = await shown(() => listPayouts(called(system, '')));
    expect(listed).toMatch(
      new RegExp(`^${id} [^]*?\\n  A proposal by grace waits for approval\\.$`, 'm'),
    );
    const output = await shown(() => showPayout(called(system, id)));
    const [own = '', others = ''] = output.split('Next, for another operator:');
    expect(own).toContain(`corridor payouts settle ${id}`);
    expect(own).toContain(
      '      asks the bank again; may be refused if the bank reports nothing new\n',
    );
    expect(own).not.toContain('payouts approve');
    expect(others).toContain(
      `--proposal ${proposed.action} --reason TEXT\n      executes what grace`,
    );
    expect((await findPayoutById(system.database, id))?.status).toBe('sent');
    const approve = { kind: 'approve', proposal: proposed.action } as const;
    const alone = await command(system, id, approve, 'grace');
    expect(alone).toMatchObject({ outcome: 'refused' });
    const approved = await command(system, id, approve, 'barbara');
    expect(approved).toMatchObject({ outcome: 'done' });
    await untilStatus(system.client, id, 'settled');
    expect(await shown(() => listPayouts(called(system, '')))).not.toContain('waits for approval');
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it('are offered no proposal whose case has ended in another way', async () => {
    const id = await park('simulate: never settle', '4000000');
    const { action: proposal } = await operate(system, id, 'settle', { evidence: 'MT103 seen' });
    const until = new Date(Date.now() + 3_600_000).toISOString();
    expect((await operate(system, id, 'extend', { until })).isCarriedOut).toBe(true);
    const list = () => listPayouts(called(system, '', { status: 'sent' }));
    const listed = await shown(list);
    expect(listed).toContain(`${id}  sent`);
    expect(listed).not.toContain('waits for approval');
    expect(await shown(() => showPayout(called(system, id)))).not.toContain('payouts approve');
    const approved = await operate(system, id, 'approve', { operator: 'barbara', proposal });
    expect(approved.printed).toContain(`refused: There is no open proposal ${proposal} for ${id}.`);
    expect((await findPayoutById(system.database, id))?.status).toBe('sent');
  });

  it('must give a reason, and cannot retry a payout that does not need an operator', async () => {
    const id = await park('simulate: never settle');
    const retry = { kind: 'retryNow' } as const;
    await expect(command(system, id, retry, '')).rejects.toThrow();
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const extended = await command(system, id, { kind: 'extendDeadline', until });
    expect(extended).toMatchObject({ outcome: 'done' });
    expect((await findPayoutById(system.database, id))?.settleBy?.toISOString()).toBe(until);
    expect(await command(system, id, retry)).toMatchObject({
      outcome: 'refused',
      detail: expect.stringContaining('does not need an operator'),
    });
  });

  it('can filter payouts, and read one as data', async () => {
    const id = await send('simulate: never settle');
    await untilStatus(system.client, id, 'sent');
    const list = (flags: Readonly<Record<string, string>>) =>
      shown(() => listPayouts(called(system, '', flags)));
    expect(await list({ status: 'sent' })).toContain(`${id}  sent`);
    expect(await list({ status: 'settled' })).not.toContain(id);
    expect(await list({ status: 'sent', 'older-than': '1h' })).not.toContain(id);
    await expect(list({ account: 'acc_0nobody' })).rejects.toThrow('no account acc_0nobody.');
    await expect(list({ status: 'stuck' })).rejects.toThrow('--status expects one of pending');
    await expect(list({ 'older-than': '1 day' })).rejects.toThrow('--older-than expects minutes');
    const json = await shown(() => showPayout({ ...called(system, id), isJson: true }));
    expect(JSON.parse(json)).toMatchObject({
      payout: { id, status: 'sent', sourceMinor: '10000' },
      wait: { who: 'the bank' },
      accepted: [],
      callbacks: [],
      entries: [{ kind: 'accept' }],
    });
  });

  it('see the reason why a payout waits only once', async () => {
    const id = await park('simulate: never settle');
    const output = await shown(() => showPayout(called(system, id)));
    const [waits, ...more] = output.match(/The rail has confirmed neither/g) ?? [];
    expect([waits, more]).toEqual(['The rail has confirmed neither', []]);
  });

  it('see why a payout was refused, and no lines for missing data', async () => {
    const answer = await system.client('POST /v1/payouts', {
      form: { source_currency: 'USD', amount: '2000', beneficiary: 'bnf_nope' },
    });
    const output = await shown(() => showPayout(called(system, String(answer.body['payout']))));
    expect(output).toContain('\n20.00 USD to an unknown currency\n');
    expect(output).toMatch(/^Refused {6}This account has no beneficiary bnf_nope\.$/m);
    expect(output).toMatch(/^Beneficiary {2}bnf_nope$/m);
  });

  it('get an error for endpoints of an account that does not exist', async () => {
    const listed = shown(() => listWebhooks(called(system, '', { account: 'acc_typo' })));
    await expect(listed).rejects.toThrow('There is no account acc_typo.');
  });

  it('see each unreadable certificate by the name of its variable', async () => {
    const environment = {
      FIRST_CERT: import.meta.filename,
      SECOND_CA_FILE: '/dev/null/ca.pem',
      UNSET_CERT: '',
    };
    const output = await shown(async () => {
      await examine({ ...called(system, ''), environment, isJson: true });
    });
    const unreadable = 'cannot be read, expected PEM or the path of a file: ';
    expect(output).toContain(`FIRST_CERT ${unreadable}Error: error:`);
    expect(output).toContain(`; SECOND_CA_FILE ${unreadable}Error: ENOTDIR`);
    expect(output).not.toContain('UNSET_CERT');
    const lines = await shown(async () => {
      await examine({ ...called(system, ''), environment: {} });
    });
    expect(lines).toMatch(/^master key {8}not checked \(MASTER_KEY is not set here\)$/m);
    expect(lines).toMatch(/^schema {12}ok$/m);
  });

  it('can cancel only payouts that the rail has not accepted', async () => {
    const { client } = system;
    const unanswered = await send('simulate: timeout then nothing');
    await expect
      .poll(async () => (await findPayoutById(system.database, unanswered))?.submitStartedAt)
      .not.toBeNull();
    expect(await shown(() => listPayouts(called(system, '')))).not.toContain(unanswered);
    await system.database`
      update payouts set submit_started_at = submit_started_at - interval '1 minute'
       where id = ${unanswered}`;
    expect(await shown(() => listPayouts(called(system, '')))).toContain(unanswered);
    const shownNow = () => shown(() => showPayout(called(system, unanswered)));
    // Attempts are shown from the second one on. The first is part of the workflow task.
    await expect.poll(shownNow).toMatch(/submitPayouts: attempt \d/);
    const show = await shownNow();
    expect(show).toContain(`corridor payouts cancel ${unanswered} --reason`);
    expect(show).not.toContain('corridor payouts fail');
    const canceled = await client(`POST /v1/payouts/${unanswered}/cancel`);
    expect(canceled).toMatchObject({ status: 200, body: { status: 'canceled' } });
    const taken = await send('simulate: never settle');
    await untilStatus(client, taken, 'sent');
    const late = await client(`POST /v1/payouts/${taken}/cancel`);
    expect(late).toMatchObject({ status: 409, body: { code: 'payout_not_cancelable' } });
    expect(await client(`POST /v1/payouts/${unanswered}/cancel`)).toMatchObject({ status: 200 });
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });
});
