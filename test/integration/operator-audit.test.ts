import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { showAudit } from '../../src/cli/audit.js';
import { newId } from '../../src/db/id.js';
import { insertRequest, listActions } from '../../src/db/operatorActions.js';
import { giveOperatorKey, revokeOperator } from '../../src/db/operators.js';
import type { OperatorResult } from '../../src/domain/operator.js';
import { eventually } from '../assertions/eventually.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { untilStatus } from '../fixtures/client.js';
import { called, environmentOf, operate, shown, signedBy } from '../fixtures/operators.js';
import { openPayer, rowOf, untilParked, wake } from '../fixtures/payer.js';
import { createTestAccount, unbalancedCurrencies, withoutTriggers } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(async () => {
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

/** A payout that the bank accepted but never reports on, parked because its deadline has passed. */
async function parked(amount = '10000'): Promise<string> {
  const payer = await openPayer(system);
  await payer.client('POST /v1/test/fund', { form: { currency: 'USD', amount } });
  const answer = await payer.ask('simulate: never settle', { amount });
  const id = String(answer.body['id']);
  await eventually(`${id} is sent`, 20_000, async () =>
    (await rowOf(system, id)).status === 'sent' ? true : undefined,
  );
  await system.database`
    update payouts set settle_by = now() - interval '1 hour' where id = ${id}`;
  await wake(system, id);
  await untilParked(system, id);
  return id;
}

/** All audit lines about a payout, as read in a database console. */
const linesAbout = (id: string) =>
  system.database<{ line: string }[]>`
    select a::text as line from operator_actions a where a::text like ${`%${id}%`}
     order by created_at`;

/** Above the amount that needs a second operator's approval, in cents. */
const large = '9000000';

describe('an approval needs the key of a second operator', () => {
  it.each([
    ['grace', 'the same operator who proposed'],
    ['mallory', 'an unknown operator'],
    ['mallory2', 'a second unknown operator'],
    ['customer', 'the customer'],
    ['GRACE', 'the name in capitals'],
    ['gr\u0430ce', 'the name with a look-alike letter'],
    ['grace\u200b', 'the name with a zero-width space'],
    ['vera', 'an operator who may only view'],
    ['otto', 'an operator who may only propose'],
  ])('%j cannot approve: %s', async (operator) => {
    const id = await parked(large);
    const proposed = await operate(system, id, 'settle', { evidence: 'MT103' });
    expect(proposed.printed).toMatch(/^proposed: /m);
    const proposal = proposed.action;
    const before = await linesAbout(id);
    expect(before).toHaveLength(1);
    expect(await operate(system, id, 'approve', { operator, proposal })).toMatchObject({
      isCarriedOut: false,
    });
    expect(await rowOf(system, id)).toMatchObject({ status: 'sent' });
    const approved = await operate(system, id, 'approve', { operator: 'barbara', proposal });
    expect(approved.printed).toMatch(/^done: /m);
    const lines = await linesAbout(id);
    expect(lines.at(-1)?.line).toContain('barbara');
  });
});

describe('a message sent to Temporal does not settle or fail a payout', () => {
  it('without a recent request for this payout, made with an operator’s key', async () => {
    const [id, other] = [await parked(large), await parked(large)];
    const { database } = system;
    const settle = { kind: 'markSettled', evidence: 'MT103' } as const;
    const request = (of: string, as = signedBy()) => insertRequest(database, of, as, settle);
    const add = { name: 'mallory', role: 'approve' } as const;
    const operatorKey = await giveOperatorKey(database, signedBy('ada'), 'add', add);
    const proposal = await operate(system, id, 'settle', { evidence: 'MT103' });
    const approve = { kind: 'approve', proposal: proposal.action } as const;
    const own = await insertRequest(database, id, signedBy(), approve);
    const ofOther = await insertRequest(database, other, signedBy('barbara'), approve);
    const old = await insertRequest(database, id, signedBy('barbara'), approve);
    await withoutTriggers(
      database,
      (sql) => sql`
        update operator_requests set created_at = now() - interval '61 minutes' where id = ${old}`,
    );
    const revoked = await insertRequest(database, id, { ...signedBy(), operatorKey }, approve);
    await revokeOperator(database, signedBy(), 'mallory');
    const workflow = system.temporal.workflow.getHandle(id);
    const send = (...args: [unknown, ...unknown[]]) =>
      workflow.executeUpdate<OperatorResult, typeof args>('operate', { args });
    for (const [forged, expected] of [
      [newId('operatorAction'), 'There is no request'],
      [await request(other), 'There is no request'],
      [ofOther, 'There is no request'],
      [old, 'There is no request'],
      [revoked, 'There is no request'],
      [own, 'You proposed this yourself'],
    ] as const) {
      const { outcome, detail } = await send(forged);
      expect({ outcome, detail }).toEqual({
        outcome: 'refused',
        detail: expect.stringContaining(expected),
      });
    }
    // A repeated command gets the same answer and is not executed again.
    expect(await send(proposal.action)).toMatchObject({ outcome: 'proposed' });
    for (const argument of [settle, 'approve', approve, null]) {
      await expect(send(argument)).rejects.toThrow();
    }
    await expect(send(old, 'barbara')).rejects.toThrow();
    expect(await workflow.executeUpdate('cancel')).toMatchObject({ outcome: 'refused' });
    await workflow.cancel();
    const { lines, row } = await eventually('the cancellation is refused', 20_000, async () => {
      const lines = await linesAbout(id);
      return lines.some(({ line }) => line.includes('temporal_ui'))
        ? { lines, row: await rowOf(system, id) }
        : undefined;
    });
    expect(row).toMatchObject({ status: 'sent', attentionReason: 'settle_by_passed' });
    expect(await rowOf(system, other)).toMatchObject({ status: 'sent' });
    expect(lines).toHaveLength(3);
    const approved = await operate(system, id, 'approve', {
      operator: 'barbara',
      ...{ reason: 'seen in the statement', proposal: proposal.action },
    });
    expect(approved.printed).toMatch(/^done: /m);
    const audit = await listActions(database, id);
    expect(audit.at(-1)).toMatchObject({
      ...{ operator: 'barbara', reason: 'seen in the statement', outcome: 'done' },
      approves: proposal.action,
    });
  });
});

describe('every command on a payout is recorded in the audit log', () => {
  it('including a customer’s, with the customer’s account', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then nothing');
    const answer = await payer.client(`POST /v1/payouts/${id}/cancel`);
    expect(answer.status).toBe(200);
    const lines = await system.database`
      select actor_kind, operator, command, outcome from operator_actions
       where subject_id = ${id}`;
    expect(lines).toMatchObject([
      {
        actorKind: 'customer',
        operator: payer.accountId,
        command: { kind: 'cancel' },
        outcome: 'done',
      },
    ]);
  });

  it('including one refused because the payout needs no decision', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: never settle');
    const retried = await operate(system, id, 'retry', { operator: 'ada' });
    expect(retried.isCarriedOut).toBe(false);
    expect(await linesAbout(id)).toHaveLength(1);
  });
});

const iban = 'DE89370400440532013000';
/** Everything that Temporal stores about a payout, with payloads decoded. */
async function keptByTemporal(id: string): Promise<string> {
  const { workflow } = system.temporal;
  const texts: string[] = [];
  for await (const { runId } of workflow.list({ query: `WorkflowId = "${id}"` })) {
    const handle = workflow.getHandle(id, runId);
    const history = historyToJSON(await handle.fetchHistory());
    texts.push(history, JSON.stringify(await handle.describe(), bigintsAsText));
    texts.push(JSON.stringify(await handle.query('__temporal_workflow_metadata')));
    for (const [, data = ''] of history.matchAll(/"data":\s*"([^"]*)"/g)) {
      texts.push(Buffer.from(data, 'base64').toString('utf8'));
    }
  }
  return texts.join('\n');
}
const bigintsAsText = (_key: string, value: unknown) =>
  typeof value === 'bigint' ? String(value) : value;

describe('text written by an operator stays in the database', () => {
  it('and never enters a workflow history', async () => {
    const id = await parked(large);
    const reason = `the bank says that ${iban} has it`;
    const signed = { operator: 'ada', reason };
    await operate(system, id, 'fail', { ...signed, statementDate: '2020-01-01' });
    const proposed = await operate(system, id, 'settle', {
      ...signed,
      evidence: `MT103 for ${iban}`,
    });
    const proposal = proposed.action;
    const proposals = await keptByTemporal(id);
    // Confirms that the history was read and contains the request.
    expect(proposals).toContain(id);
    expect(proposals).toContain(proposal);
    const approval = { operator: 'grace', reason: `seen: ${iban}`, proposal };
    expect(await operate(system, id, 'approve', approval)).toMatchObject({ isCarriedOut: true });
    await system.temporal.workflow.getHandle(id).result();
    const kept = await keptByTemporal(id);
    for (const text of [iban, 'MT103', 'the bank says']) expect(kept).not.toContain(text);
    // The text is in the audit log, where it belongs.
    expect((await linesAbout(id)).filter(({ line }) => line.includes(iban))).toHaveLength(3);
  });
});

describe('text that a bank sends in place of a code', () => {
  it('is not shown and never enters a workflow history', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    await untilStatus(payer.client, id, 'settled');
    const row = await rowOf(system, id);
    const rejection = newsOf(row, { type: 'rejected', code: iban, reason: `of ${iban}` });
    expect(await callBack(system, [rejection])).toBe(200);
    const parked = await untilParked(system, id);
    expect(parked.attentionDetail).toBe('The rail rejected (NARR) a payout that is settled.');
    const kept = await eventually('the workflow shows the payout', 20_000, async () => {
      const text = await keptByTemporal(id);
      return text.includes('Needs an operator') ? text : undefined;
    });
    expect(kept).not.toContain(iban);
    await operate(system, id, 'settle', { evidence: 'the bank was called' });
  });
});

describe('a command that changes something', () => {
  const cli = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
  /** Runs `corridor …` as an operator does. */
  const corridor = (...args: readonly string[]) => corridorAs('grace', ...args);
  function corridorAs(
    operator: string,
    ...args: readonly string[]
  ): Promise<{ code: number; output: string }> {
    return run(environmentOf(system.urls.operator, operator), ...args);
  }
  function run(
    env: NodeJS.ProcessEnv,
    ...args: readonly string[]
  ): Promise<{ code: number; output: string }> {
    return new Promise((resolve) => {
      execFile(process.execPath, [cli, ...args], { env }, (error, stdout, stderr) => {
        resolve({ output: stdout + stderr, code: error === null ? 0 : Number(error.code) });
      });
    });
  }
  const by = ['--reason', 'ticket 17'] as const;

  it('has a one-line reason that cannot forge another audit line', async () => {
    for (const reason of ['x\n2026-11-22  barbara: done', 'x\u001b[1A\u001b[2K']) {
      const opened = await corridor('account', 'open', '--name', 'A', '--reason', reason);
      expect(opened).toMatchObject({ code: 2, output: expect.stringContaining('--reason') });
    }
    await expect(
      system.database`
        insert into operator_requests (id, payout_id, operator, reason, command)
        select ${`op_${'0'.repeat(26)}`}, id, 'grace', ${'x\ny'}, '{}' from payouts limit 1`,
    ).rejects.toThrow(/reason|check/);
  });

  it('is refused without a reason', async () => {
    const { account } = await createTestAccount(system.database);
    for (const command of [
      ['account', 'open', '--name', 'Nobody'],
      ['account', 'fund', '--account', account.id, '--currency', 'USD', '--amount', '1'],
      ['keys', 'create', '--account', account.id, '--name', 'second'],
      ['keys', 'roll', 'key_1'],
      ['keys', 'revoke', 'key_1'],
      ['batches', 'pause', 'bat_1'],
      ['batches', 'resume', 'bat_1'],
      ['rates', 'accept', '1'],
      ['rates', 'use', 'reference'],
      ['erase', 'bnf_1'],
      ['master-key', 'rotate'],
    ]) {
      const { code, output } = await corridor(...command);
      expect([command.join(' '), code, output.split('\n')[0]]).toEqual([
        command.join(' '),
        2,
        '--reason is missing.',
      ]);
    }
  });

  it('leaves an audit line that names its subject', async () => {
    const opened = await corridor('account', 'open', '--name', 'Audited', ...by);
    expect(opened.code, opened.output).toBe(0);
    const accountId = /acc_\w+/.exec(opened.output)?.[0] ?? '';
    const made = await corridor('keys', 'create', '--account', accountId, '--name', 'erp', ...by);
    const keyId = /\bkey_\w+/.exec(made.output)?.[0] ?? '';
    const key = /cor_test_\w+/.exec(made.output)?.[0] ?? '';
    const rolled = await corridor('keys', 'roll', keyId, ...by);
    expect(rolled.code, rolled.output).toBe(0);
    expect((await corridor('keys', 'revoke', keyId, ...by)).code).toBe(0);
    const funds = ['--account', accountId, '--currency', 'USD', '--amount', '12.30'];
    expect((await corridor('account', 'fund', ...funds, ...by)).code).toBe(0);
    expect((await corridor('rates', 'use', 'reference', ...by)).code).toBe(0);
    const lines = await system.database<{ command: { kind: string }; text: string }[]>`
      select subject_type, subject_id, actor_kind, operator, reason, outcome, command,
             a::text as text
        from operator_actions a where reason = 'ticket 17' order by created_at, id`;
    const done = { actorKind: 'operator', reason: 'ticket 17', outcome: 'done' };
    const account = { ...done, subjectType: 'account', subjectId: accountId };
    const aKey = { ...done, subjectType: 'api_key', subjectId: keyId };
    expect(lines).toMatchObject([
      { ...account, command: { kind: 'account open' } },
      { ...aKey, command: { kind: 'keys create' } },
      { ...aKey, command: { kind: 'keys roll' } },
      { ...aKey, command: { kind: 'keys revoke' } },
      { ...account, command: { kind: 'account fund', currency: 'USD', amount: '12.30' } },
      { ...done, subjectType: 'rate', command: { kind: 'rates use' } },
    ]);
    expect(lines.map(({ text }) => text).join()).not.toContain(key);
  });

  it.each([
    [['payouts', 'show', 'po_nope'], 'There is no payout po_nope.'],
    [['payouts', 'list', '--account', 'acc_nope'], 'There is no account acc_nope.'],
    [['account', 'freeze', 'acc_nope', ...by], 'There is no account acc_nope.'],
    [['batches', 'pause', 'bat_nope', ...by], 'There is no batch bat_nope.'],
    [['keys', 'revoke', 'key_nope', ...by], 'key_nope is not a key, or is already revoked.'],
    [['rates', 'accept', '999', ...by], 'No rate 999 is waiting. See corridor rates list.'],
    [['erase', 'bnf_nope', ...by], 'There is no beneficiary bnf_nope.'],
  ])('is refused for something that does not exist: %j', async (args, message) => {
    expect(await corridor(...args)).toEqual({ code: 1, output: `${message}\n` });
  });

  it('needs an operator key, which the command line issues, shows once, replaces and revokes', async () => {
    const why = ['--reason', 'a new colleague'] as const;
    const keyIn = (output: string) => /\bcop_\w{36}\b/.exec(output)?.[0] ?? '';
    const added = await corridor('operators', 'add', 'carl', '--role', 'view', ...why);
    expect(added.code, added.output).toBe(0);
    const env = {
      ...environmentOf(system.urls.operator),
      CORRIDOR_OPERATOR_KEY: keyIn(added.output),
    };
    const listed = await run(env, 'operators', 'list');
    expect(listed.output).toMatch(/^carl {2}view {2}key …\w{4} issued \S+$/m);
    const rolled = await run(env, 'operators', 'roll', 'carl', ...why);
    const unknown = { code: 1, output: expect.stringMatching(/^The operator's key is unknown/) };
    expect(await run(env, 'operators', 'list')).toMatchObject(unknown);
    const { output } = await corridor('operators', 'revoke', 'carl', ...why);
    expect(output).toBe('carl is revoked.\n');
    const second = { ...env, CORRIDOR_OPERATOR_KEY: keyIn(rolled.output) };
    expect(await run(second, 'payouts', 'list')).toMatchObject(unknown);
    for (const [key, url, args, expected, code] of [
      [
        '',
        system.urls.operator,
        ['payouts', 'list', '--data', 'none'],
        'CORRIDOR_OPERATOR_KEY is not set',
        3,
      ],
      [
        `${keyIn(added.output).slice(0, -1)}!`,
        system.urls.operator,
        ['payouts', 'list'],
        'expected cop_',
        3,
      ],
      [
        '',
        system.urls.operator,
        ['operators', 'first', 'eve', ...why],
        'the login of the owner',
        2,
      ],
      [
        '',
        system.databaseUrl,
        ['operators', 'first', 'eve', ...why],
        'Two admins already have keys',
        1,
      ],
    ] as const) {
      const wrong = { ...env, DATABASE_URL: url, CORRIDOR_OPERATOR_KEY: key };
      const refused = await run(wrong, ...args);
      expect(refused).toMatchObject({ code, output: expect.stringContaining(expected) });
      expect(refused.output.includes('See: corridor help')).toBe(code === 2);
    }
  });

  it('does nothing without a key whose role allows it', async () => {
    const open = ['account', 'open', '--name', 'N', '--reason', 'x'];
    const named = await corridor(...open, '--operator', 'grace');
    expect(named).toMatchObject({
      code: 2,
      output: expect.stringMatching(/^--operator: leave it out/),
    });
    for (const [operator, expected] of [
      [
        'mallory',
        /^The operator's key is unknown, replaced or revoked, or its session has ended\.$/m,
      ],
      ['otto', /^otto has the role operate; this takes admin\.$/m],
      ['vera', /^vera has the role view; this takes admin\.$/m],
    ] as const) {
      const refused = await corridorAs(operator, ...open);
      expect(refused).toMatchObject({ code: 1, output: expect.stringMatching(expected) });
    }
    const [{ count } = { count: -1 }] = await system.database<{ count: number }[]>`
      select count(*)::int as count from accounts where name = 'N'`;
    expect(count).toBe(0);
  });
});

describe('the audit log', () => {
  it('lists who did what, why and on whose proposal, newest first', async () => {
    const id = await parked(large);
    const { action: proposal } = await operate(system, id, 'settle', { evidence: 'MT103' });
    await operate(system, id, 'approve', { operator: 'barbara', proposal });
    const audit = (subject: string, flags: Readonly<Record<string, string>> = {}) =>
      shown(() => showAudit({ ...called(system, subject), flags }));
    const lines = (await audit(id)).split('\n');
    expect(lines.map((line) => line.replace(/op_\w+|^\S+Z/g, '…'))).toEqual([
      `… barbara: approve ${id}`,
      expect.stringContaining('{"proposal":"…"}'),
      expect.stringMatching(/^ {2}done: /),
      expect.stringMatching(/^ {2}…, because: /),
      '  proposed by grace',
      expect.stringMatching(`^… grace: markSettled ${id}`),
      expect.stringContaining('{"evidence":"MT103"}'),
      expect.stringMatching(/^ {2}proposed: /),
      expect.stringMatching(/^ {2}…, because: /),
    ]);
    const byGrace = await audit('', { by: 'grace' });
    expect(byGrace).toContain(`grace: markSettled ${id}`);
    expect(byGrace).not.toContain('barbara: ');
    expect(await audit(id, { since: '2026-01-01' })).toContain('proposed by grace');
    expect(await audit(id, { since: '2999-01-01' })).toBe('No entry matches.');
    await expect(audit(id, { since: 'yesterday' })).rejects.toThrow('--since expects a day');
    const add = { name: 'nora', role: 'view' } as const;
    await giveOperatorKey(system.database, signedBy('ada'), 'add', add);
    expect(await audit('operator_nora')).toMatch(/ada: \w.* operator_nora/);
  });
});
