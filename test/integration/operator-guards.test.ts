import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { setAccountState } from '../../src/db/accounts.js';
import { hashOfKey, insertApiKey, revokeApiKey } from '../../src/db/apiKeys.js';
import { pauseBatch, resumeBatch } from '../../src/db/batches.js';
import {
  connectDatabase,
  type Database,
  exactlyOne,
  isRaisedByFunction,
  type Sql,
} from '../../src/db/client.js';
import { insertOpening } from '../../src/db/corridorOpenings.js';
import { newId } from '../../src/db/id.js';
import { entriesOf, type OwnedEntry, postEntries, setLimits } from '../../src/db/ledger.js';
import {
  findRequest,
  insertRequest,
  openProposals,
  recordAction,
  recordCommand,
} from '../../src/db/operatorActions.js';
import { enrollAdmin, giveOperatorKey, revokeOperator } from '../../src/db/operators.js';
import { type Entry, type Posting, reversalOf } from '../../src/domain/ledger.js';
import type {
  Correction,
  OperatorCommand,
  OperatorRole,
  Signature,
} from '../../src/domain/operator.js';
import { referenceSource } from '../../src/rates/reference.js';
import { eventually } from '../assertions/eventually.js';
import { invisibleLines, legibleLines } from '../fixtures/lines.js';
import { signature, signedBy } from '../fixtures/operators.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTriggers,
} from '../servers/database.js';

// Operations that the database refuses to operators, whatever the code does.

let test: TestDatabase;
let database: Database;
/** Connected with the operators' login. */
let operator: Database;
let accountId: string;
const checkViolation = { code: '23514' };
const uniqueViolation = { code: '23505' };

beforeAll(async () => {
  test = await createTestDatabase();
  ({ database } = test);
  operator = connectDatabase({ url: test.urls.operator, poolSize: 1, applicationName: 'test' });
  accountId = (await createTestAccount(database)).account.id;
});
afterAll(async () => {
  await operator.end({ timeout: 5 });
  await test.drop();
});

const payout = async () => (await requestPayout(database, accountId)).id;

/** Requests a payout and parks it, because proposals are open only while a person is needed. */
async function parkedPayout(): Promise<string> {
  const id = await payout();
  await database`
    update payouts set attention_reason = 'settle_by_passed', attention_detail = 'a test',
                       attention_at = now() where id = ${id}`;
  return id;
}

type Line = Omit<Partial<Parameters<typeof recordAction>[1]>, 'command'> & {
  readonly command?: OperatorCommand;
};

/** Writes a line of the audit log, by default one that matches its request; returns its ID. */
async function line(payoutId: string, changes: Line = {}): Promise<string> {
  const { operator = 'grace', approves } = changes;
  const command: OperatorCommand = approves
    ? { kind: 'approve', proposal: approves }
    : (changes.command ?? { kind: 'retryNow' });
  const signed = signedBy(operator);
  const isAsked = changes.actorKind === undefined && payoutId.startsWith('po_');
  const id = isAsked
    ? await insertRequest(database, payoutId, signed, command)
    : newId('operatorAction');
  await recordAction(database, {
    id,
    subjectId: payoutId,
    actorKind: 'operator',
    operator,
    reason: signed.reason,
    command,
    outcome: 'done',
    detail: '',
    approves: null,
    ...changes,
  });
  return id;
}

/** Lets one operator propose and another carry out a command; returns the ID of the approval. */
async function approved(payoutId: string, command: OperatorCommand | Correction): Promise<string> {
  const proposed: OperatorCommand = isCommand(command)
    ? command
    : { kind: 'correct', correction: command };
  const approves = await line(payoutId, { outcome: 'proposed', command: proposed });
  return line(payoutId, { operator: 'barbara', approves });
}

function isCommand(command: OperatorCommand | Correction): command is OperatorCommand {
  return !['lateReturn', 'clearSuspense', 'reverse', 'book'].includes(command.kind);
}

/** A late return, as an operator requests it and as it is posted. */
const cameBack = { kind: 'lateReturn', amountMinor: '5' } as const;
const lateReturn: Entry = {
  kind: 'late_return',
  postings: [
    { account: 'rail_settlement', currency: 'EUR', amountMinor: -5n },
    { account: 'suspense', currency: 'EUR', amountMinor: 5n },
  ],
};

function post(payoutId: string, entry: Entry, action?: string): Promise<void> {
  const owned: OwnedEntry = { entry, mode: 'test', accountId, payoutId };
  return postEntries(test.worker, [action === undefined ? owned : { ...owned, action }]);
}

const retry = { kind: 'retryNow' } as const;

describe('an audit line', () => {
  it.each([
    '',
    ' ',
    ' grace',
    'customer',
    'Customer',
    'system',
    'temporal-ui',
    'Temporal_UI',
    'gra\u200bce',
    '\ufeffgrace',
    'grace\u00ad',
    'gra\u0007ce',
    'grace\u3164',
    'grace\u2800',
    'ｇｒａｃｅ',
    'x'.repeat(65),
  ])('cannot name the operator %j', async (operator) => {
    await expect(line(accountId, { operator })).rejects.toMatchObject(checkViolation);
  });

  it.each([...invisibleLines, 'paid\u200b'])(
    'cannot have a reason with invisible characters: %j',
    async (reason) => {
      const request = insertRequest(database, await payout(), { ...signedBy(), reason }, retry);
      await expect(request).rejects.toMatchObject(checkViolation);
    },
  );

  it.each(legibleLines)('can have the reason %j', async (reason) => {
    await insertRequest(database, await payout(), { ...signedBy(), reason }, retry);
  });

  it('matches the request with the same id', async () => {
    const [id, other] = [await payout(), await payout()];
    const input = { reason: signature.reason, command: { kind: 'retryNow' } } as const;
    const request = await insertRequest(database, id, signedBy(), input.command);
    const record = {
      ...input,
      ...({ id: request, operator: 'grace', subjectId: id, actorKind: 'operator' } as const),
    };
    const done = { outcome: 'done', detail: '', approves: null } as const;
    for (const wrong of [
      { id: newId('operatorAction') },
      { subjectId: other },
      { operator: 'barbara' },
      { reason: 'another' },
      { command: { kind: 'cancel' } },
    ] as const) {
      const forged = recordAction(test.worker, { ...record, ...done, ...wrong });
      await expect(forged, JSON.stringify(wrong)).rejects.toMatchObject(checkViolation);
    }
    const aboutAccount = { id: newId('operatorAction'), subjectId: accountId };
    const invented = recordAction(test.worker, { ...record, ...done, ...aboutAccount });
    await expect(invented).rejects.toMatchObject(checkViolation);
    // Neither the worker nor the API may make a request, whichever operator's key it uses.
    for (const process of [test.worker, test.api]) {
      const made = insertRequest(process, id, signedBy(), input.command);
      await expect(made).rejects.toMatchObject({ code: '42501' });
    }
    await recordAction(test.worker, { ...record, ...done });
  });

  it('names the customer by account; customers and Temporal UI buttons can only cancel', async () => {
    const id = await payout();
    const cancel = { command: { kind: 'cancel' } } as const;
    await line(id, { actorKind: 'customer', operator: accountId, ...cancel });
    await line(id, { actorKind: 'temporal_ui', operator: 'temporal-ui', ...cancel });
    for (const wrong of [
      { actorKind: 'customer', operator: 'grace', ...cancel },
      { actorKind: 'customer', operator: accountId },
      { actorKind: 'temporal_ui', operator: 'temporal-ui' },
    ] as const) {
      await expect(line(id, wrong)).rejects.toMatchObject(checkViolation);
    }
  });

  it('approves only another operator’s proposal for the same payout', async () => {
    const [id, other] = [await payout(), await payout()];
    const approves = await line(id, { outcome: 'proposed' });
    const done = await line(id);
    for (const wrong of [
      { approves, operator: 'grace' },
      { approves, operator: 'barbara', subjectId: other },
      { approves: done, operator: 'barbara' },
      { approves: 'op_none', operator: 'barbara' },
      { approves, operator: accountId, actorKind: 'customer', command: { kind: 'cancel' } },
    ] as const) {
      await expect(line(id, wrong), JSON.stringify(wrong)).rejects.toMatchObject(checkViolation);
    }
    await line(id, { approves, operator: 'barbara' });
    await expect(line(id, { approves, operator: 'ada' })).rejects.toMatchObject(uniqueViolation);
  });

  it.each(['operator_actions', 'operator_requests'])(
    'cannot be changed or deleted, nor can a request: %s',
    async (table) => {
      const id = await payout();
      await line(id);
      await insertRequest(database, id, signedBy(), { kind: 'retryNow' });
      for (const change of [
        `update ${table} set reason = 'another'`,
        `delete from ${table}`,
        `truncate ${table} cascade`,
      ]) {
        await expect(database.unsafe(change)).rejects.toThrow('append-only');
      }
    },
  );

  it('cannot have a blank reason or one with control characters', async () => {
    for (const reason of [' ', 'x\ny', 'x\u001b[2K']) {
      const signed = { ...signedBy(), reason };
      const request = insertRequest(database, await payout(), signed, { kind: 'retryNow' });
      await expect(request).rejects.toMatchObject(checkViolation);
    }
  });
});

/** A separate operator for this test, with a key issued by an admin. */
async function enlist(name: string, role: OperatorRole): Promise<Signature> {
  const operatorKey = await giveOperatorKey(database, signedBy(), 'add', { name, role });
  return { ...signedBy(), operatorKey };
}

/** Writes the line that a worker writes when it has executed a request. */
async function executed(id: string, payoutId: string, approves: string | null = null) {
  const [request] = await database<
    { operator: string; reason: string; command: OperatorCommand }[]
  >`
    select operator, reason, command from operator_requests where id = ${id}`;
  await recordAction(test.worker, {
    ...exactlyOne(request),
    ...{ id, subjectId: payoutId, actorKind: 'operator', outcome: 'done', detail: '', approves },
  });
}

describe('an operator is identified by their key', () => {
  const proposal: OperatorCommand = { kind: 'markSettled', evidence: 'MT103' };
  /** Proposes a command on a payout and returns the proposal's ID. */
  const propose = (payoutId: string) => line(payoutId, { outcome: 'proposed', command: proposal });
  const approval = (id: string): OperatorCommand => ({ kind: 'approve', proposal: id });

  it('and may do what the role allows', async () => {
    const id = await payout();
    const commands = [
      { kind: 'retryNow' },
      proposal,
      { kind: 'cancel' },
      approval('op_1'),
    ] as const;
    const kinds = ['batches pause', 'corridors close', 'account open', 'keys create', 'rates use'];
    const may = async (name: string) => {
      const does = async (work: () => Promise<unknown>) => {
        try {
          await work();
          return 1;
        } catch (error) {
          if (isRaisedByFunction(error)) return 0;
          throw error;
        }
      };
      const made: number[] = [];
      for (const command of commands) {
        made.push(await does(() => insertRequest(database, id, signedBy(name), command)));
      }
      for (const kind of kinds) {
        made.push(await does(() => recordCommand(database, signedBy(name), accountId, { kind })));
      }
      return made.join('');
    };
    expect({
      view: await may('vera'),
      operate: await may('otto'),
      approve: await may('barbara'),
      admin: await may('grace'),
      nobody: await may('mallory'),
    }).toEqual({
      view: '000000000',
      operate: '111011000',
      approve: '111111000',
      admin: '111111111',
      nobody: '000000000',
    });
  });

  it('and stays the same person when the key is replaced, after which the old key does nothing', async () => {
    const [id, first] = [await payout(), await enlist('carol', 'approve')];
    const request = await insertRequest(database, id, first, proposal);
    await recordAction(test.worker, {
      ...{ id: request, subjectId: id, actorKind: 'operator', operator: 'carol', detail: '' },
      ...{ reason: first.reason, command: proposal, outcome: 'proposed', approves: null },
    });
    const rolled = { name: 'carol', role: null };
    const operatorKey = await giveOperatorKey(operator, first, 'roll', rolled);
    await expect(insertRequest(database, id, first, approval(request))).rejects.toThrow(
      "The operator's key is unknown, replaced or revoked, or its session has ended.",
    );
    const again = await insertRequest(database, id, { ...first, operatorKey }, approval(request));
    await expect(executed(again, id, request)).rejects.toMatchObject(checkViolation);
    const other = await insertRequest(database, id, signedBy('barbara'), approval(request));
    await executed(other, id, request);
  });

  it('and cannot change their own role, or issue keys to others, without being an admin', async () => {
    const dora = await enlist('dora', 'approve');
    for (const [name, role] of [
      ['dora', 'admin'],
      ['grace', null],
      ['grace', 'view'],
    ] as const) {
      const rolled = giveOperatorKey(operator, dora, 'roll', { name, role });
      await expect(rolled, name).rejects.toThrow('dora has the role approve; this takes admin.');
    }
    const added = giveOperatorKey(operator, dora, 'add', { name: 'eve', role: 'view' });
    await expect(added).rejects.toThrow('this takes admin');
    await expect(revokeOperator(operator, dora, 'grace')).rejects.toThrow('this takes admin');
    await expect(enrollAdmin(operator, 'dora', 'a test')).rejects.toMatchObject({ code: '42501' });
  });

  it('and can do nothing with a revoked key, whose open requests are void', async () => {
    const [id, frank] = [await parkedPayout(), await enlist('frank', 'approve')];
    const request = await insertRequest(database, id, frank, { kind: 'retryNow' });
    const proposed = await insertRequest(database, id, frank, proposal);
    await recordAction(test.worker, {
      ...{ id: proposed, subjectId: id, actorKind: 'operator', operator: 'frank', detail: '' },
      ...{ reason: frank.reason, command: proposal, outcome: 'proposed', approves: null },
    });
    expect(await findRequest(test.worker, id, request)).toMatchObject({ operator: 'frank' });
    expect(await openProposals(test.worker, [id])).toMatchObject([{ id: proposed }]);
    await revokeOperator(operator, signedBy(), 'frank');
    await expect(insertRequest(database, id, frank, proposal)).rejects.toThrow('revoked');
    expect(await findRequest(test.worker, id, request)).toBeUndefined();
    await expect(executed(request, id)).rejects.toMatchObject(checkViolation);
    expect(await openProposals(test.worker, [id])).toEqual([]);
    const approving = await insertRequest(database, id, signedBy('barbara'), approval(proposed));
    await expect(executed(approving, id, proposed)).rejects.toMatchObject(checkViolation);
  });

  it('and a proposal is void once its operator may no longer propose it', async () => {
    const [id, fiona] = [await parkedPayout(), await enlist('fiona', 'operate')];
    const proposed = await insertRequest(database, id, fiona, proposal);
    await recordAction(test.worker, {
      ...{ id: proposed, subjectId: id, actorKind: 'operator', operator: 'fiona', detail: '' },
      ...{ reason: fiona.reason, command: proposal, outcome: 'proposed', approves: null },
    });
    expect(await openProposals(test.worker, [id])).toMatchObject([{ id: proposed }]);
    await giveOperatorKey(operator, signedBy(), 'roll', { name: 'fiona', role: 'view' });
    expect(await openProposals(test.worker, [id])).toEqual([]);
    const approving = await insertRequest(database, id, signedBy('barbara'), approval(proposed));
    await expect(executed(approving, id, proposed)).rejects.toMatchObject(checkViolation);
  });

  it('and cannot approve if, within 7 days, one issued the other’s key or a third issued both', async () => {
    const id = await payout();
    const [henry, ivan] = [await enlist('henry', 'approve'), await enlist('ivan', 'admin')];
    const role = { name: 'jane', role: 'approve' } as const;
    const jane = { ...ivan, operatorKey: await giveOperatorKey(database, ivan, 'add', role) };
    const ofGrace = approval(await propose(id));
    const ofHenry = await insertRequest(database, id, henry, proposal);
    await recordAction(test.worker, {
      ...{ id: ofHenry, subjectId: id, actorKind: 'operator', operator: 'henry', detail: '' },
      ...{ reason: henry.reason, command: proposal, outcome: 'proposed', approves: null },
    });
    for (const [signed, command] of [
      [henry, ofGrace],
      // Indirectly, from the other side, and where a third operator issued both keys.
      [jane, ofGrace],
      [signedBy(), approval(ofHenry)],
      [jane, approval(ofHenry)],
    ] as const) {
      await expect(insertRequest(database, id, signed, command)).rejects.toThrow(
        / may not approve this: within the last 7 days (grace|henry) gave a key to one of you or both/,
      );
    }
    await insertRequest(database, id, signedBy('barbara'), ofGrace);
    await withoutTriggers(database, async (sql) => {
      await sql`
        update operator_actions set created_at = created_at - interval '7 days'
         where subject_id like 'operator\\_%'`;
    });
    await insertRequest(database, id, henry, ofGrace);
  });

  it('and cannot write an audit line about a payout: the worker that executes the request does', async () => {
    const id = await payout();
    const reason = signature.reason;
    const request = await insertRequest(operator, id, signedBy('otto'), proposal);
    const forged = operator`
      select record_command(${signedBy('otto').operatorKey}, ${request}, ${id}, ${reason},
        ${operator.json(proposal)})`;
    await expect(forged).rejects.toMatchObject(checkViolation);
    await executed(request, id);
  });

  it('and cannot reuse the id of a request, which would leave the request without an audit line', async () => {
    const id = await payout();
    const request = await insertRequest(operator, id, signedBy('barbara'), { kind: 'retryNow' });
    const pause = operator.json({ kind: 'batches pause' });
    const hash = hashOfKey('another key');
    for (const taken of [
      operator`select record_command(${signedBy('otto').operatorKey}, ${request}, 'bat_1', 'x', ${pause})`,
      operator`
        select give_operator_key(${signedBy('vera').operatorKey}, ${request}, 'roll', 'vera', null,
          ${hash}, 'last', 'x')`,
    ]) {
      await expect(taken).rejects.toMatchObject(checkViolation);
    }
    await executed(request, id);
  });

  it('and cannot forge a line of the operator list', async () => {
    const four = '1234\nada  view  key …';
    const rolled = operator`
      select give_operator_key(${signedBy('vera').operatorKey}, ${newId('operatorAction')}, 'roll', 'vera',
        null, ${hashOfKey('a third key')}, ${four}, 'x')`;
    await expect(rolled).rejects.toMatchObject(checkViolation);
  });

  it('and cannot hide characters in a command or its subject', async () => {
    const id = await payout();
    const hidden = { kind: 'retryNow', a: '\u202e' } as const;
    const request = insertRequest(operator, id, signedBy('otto'), hidden);
    await expect(request).rejects.toMatchObject(checkViolation);
    const pause = { kind: 'batches pause' };
    const about = 'bat_1\n2026-11-22  barbara: done';
    const recorded = recordCommand(operator, signedBy('otto'), about, pause);
    await expect(recorded).rejects.toMatchObject(checkViolation);
    const named = recordCommand(operator, signedBy(), 'bat_1', { ...pause, name: 'x\u202ey' });
    await expect(named).rejects.toMatchObject(checkViolation);
  });

  it('and issues keys by add or roll only, at the current time even in a long transaction', async () => {
    for (const verb of ['promote', null]) {
      const issued = operator`
        select give_operator_key(${signedBy().operatorKey}, ${newId('operatorAction')}, ${verb}, 'kate',
          'approve', sha256('a key'), 'last', 'a friend')`;
      await expect(issued).rejects.toThrow(
        'Operators are given a key or an identity by add and roll.',
      );
    }
    await operator.begin(async (sql) => {
      await sql`select pg_sleep(0.2)`;
      await giveOperatorKey(sql, signedBy(), 'add', { name: 'kate', role: 'approve' });
    });
    const [line] = await database`
      select a.created_at - o.created_at > interval '0.1 s' as is_of_now
        from operators o join operator_actions a on a.subject_id = 'operator_' || o.name
       where o.name = 'kate'`;
    expect(line).toEqual({ isOfNow: true });
  });

  it.each<[string, (sql: Sql, name: string) => Promise<unknown>]>([
    ['revoked', (sql, name) => revokeOperator(sql, signedBy(), name)],
    ['rolled', (sql, name) => giveOperatorKey(sql, signedBy(), 'roll', { name, role: null })],
  ])('and cannot roll their key while it is being %s', async (what, end) => {
    const name = `louise-${what}`;
    const louise = await enlist(name, 'approve');
    let own: Promise<void> | undefined;
    await operator.begin(async (sql) => {
      await end(sql, name);
      const rolled = giveOperatorKey(database, louise, 'roll', { name, role: null });
      own = expect(rolled).rejects.toThrow("The operator's key is unknown, replaced or revoked");
      await eventually('the concurrent roll waits for the lock', 2_000, async () => {
        const waiting = await test.worker`
          select from pg_locks
           where relation = 'operators'::regclass and not granted
             and database = (select oid from pg_database where datname = current_database())`;
        return waiting.count > 0 || undefined;
      });
    });
    await own;
  });

  it('and cannot use a replaced key in a transaction whose snapshot still has it', async () => {
    const nora = await enlist('nora', 'admin');
    const other = connectDatabase({
      url: test.urls.operator,
      poolSize: 1,
      applicationName: 'test',
    });
    try {
      for (const isolation of ['repeatable read', 'serializable']) {
        const added = other.begin(`isolation level ${isolation}`, async (sql) => {
          await sql`select from accounts limit 1`;
          await giveOperatorKey(operator, signedBy(), 'roll', { name: 'nora', role: null });
          await giveOperatorKey(sql, nora, 'add', { name: 'olaf', role: 'admin' });
        });
        await expect(added, isolation).rejects.toThrow(
          'An operator acts in a transaction that is read committed.',
        );
      }
    } finally {
      await other.end({ timeout: 5 });
    }
  });

  it('and a request that is an hour old is no longer executed', async () => {
    const id = await payout();
    const old = await insertRequest(database, id, signedBy(), { kind: 'retryNow' });
    await withoutTriggers(
      database,
      (sql) => sql`
        update operator_requests set created_at = now() - interval '1 hour' where id = ${old}`,
    );
    expect(await findRequest(test.worker, id, old)).toBeUndefined();
    await expect(executed(old, id)).rejects.toMatchObject(checkViolation);
  });

  it.each([
    ['Grace', 'in capitals'],
    ['gr\u0430ce', 'with a look-alike letter'],
    ['grace\u200b', 'with a zero-width space'],
    ['grace ', 'with a space'],
    ['customer', 'a reserved name'],
    ['', 'without a name'],
  ])('and cannot be added as %j: %s', async (name) => {
    await expect(enlist(name, 'approve')).rejects.toMatchObject(checkViolation);
  });

  it('and cannot approve their own proposal', async () => {
    const id = await payout();
    const proposed = await propose(id);
    const approving = await insertRequest(database, id, signedBy(), approval(proposed));
    await expect(executed(approving, id, proposed)).rejects.toMatchObject(checkViolation);
  });
});

const oneDollar = {
  currency: 'USD',
  destination: null,
  payoutMinor: 100n,
  dayMinor: null,
  monthMinor: null,
} as const;

describe('the operators’ database login without an operator key', () => {
  it.each([
    `insert into operator_requests (id, payout_id, operator, reason, command)
     select 'op_${'0'.repeat(26)}', id, 'grace', 'x', '{"kind": "retryNow"}' from payouts limit 1`,
    `insert into operator_actions
       (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
     values ('op_1', 'acc_1', 'operator', 'grace', 'x', '{}', 'done', '')`,
    "update operators set role = 'admin'",
    "insert into operators values ('mallory', 'admin', '', '')",
    'delete from operators',
    "select enroll_operator('op_1', 'mallory', 'admin', '', '', '', '', '')",
    "update payouts set driver = 'mallory'",
    "select allow_login('corridor_worker', 'mallory', 'mallory')",
  ])('is refused: %s', async (statement) => {
    await expect(operator.unsafe(statement)).rejects.toMatchObject({ code: '42501' });
  });

  it('changes nothing without the audit line of an authorized operator in the same transaction', async () => {
    const freeze = (sql: Sql) => setAccountState(sql, accountId, 'frozen');
    const record = (sql: Sql, name: string, kind: string) =>
      recordCommand(sql, signedBy(name), accountId, { kind });
    const needsAdmin = { code: '42501', message: expect.stringContaining('the role admin') };
    await expect(operator.begin(freeze)).rejects.toMatchObject(needsAdmin);
    await operator.begin((sql) => record(sql, 'grace', 'account frozen'));
    await expect(operator.begin(freeze)).rejects.toMatchObject(needsAdmin);
    const paused = operator.begin(async (sql) => {
      await record(sql, 'otto', 'batches pause');
      await freeze(sql);
    });
    await expect(paused).rejects.toMatchObject(needsAdmin);
    const [row] = await database`select state from accounts where id = ${accountId}`;
    expect(row).toEqual({ state: 'open' });
    await operator.begin(async (sql) => {
      await freeze(sql);
      await record(sql, 'grace', 'account frozen');
      await setAccountState(sql, accountId, 'open');
      await record(sql, 'grace', 'account open');
    });
  });

  it('changes nothing if the audit line says the opposite', async () => {
    const [rate] = await database<{ id: string }[]>`select id::text from rates limit 1`;
    const rateId = exactlyOne(rate).id;
    const batchId = await requestBatch(database, accountId, { count: 1 });
    await pauseBatch(database, batchId);
    const lies: Record<string, (sql: Sql) => Promise<unknown>> = {
      account: async (sql) => {
        await setAccountState(sql, accountId, 'frozen');
        await recordCommand(sql, signedBy(), accountId, { kind: 'account open' });
      },
      corridor: async (sql) => {
        const opening = { source: 'USD', destination: null, isOpen: true };
        const { id } = await insertOpening(sql, opening, null);
        await recordCommand(sql, signedBy(), `corridor_${id}`, { kind: 'corridors close' });
      },
      batch: async (sql) => {
        await recordCommand(sql, signedBy(), batchId, { kind: 'batches pause' });
        await resumeBatch(sql, batchId);
      },
      rate: async (sql) => {
        const operator = await recordCommand(sql, signedBy(), rateId, { kind: 'rates rejected' });
        await sql`
          insert into rate_decisions (rate_id, outcome, operator, reason)
          values (${rateId}, 'accepted', ${operator}, 'a test')`;
      },
      'first key': async (sql) => {
        await recordCommand(sql, signedBy(), accountId, { kind: 'account open' });
        const key = { accountId, keyHash: hashOfKey('second'), lastFour: 'cond' };
        await insertApiKey(sql, key);
      },
      'new key': async (sql) => {
        const key = { accountId, keyHash: hashOfKey('third'), lastFour: 'hird' };
        const { id } = await insertApiKey(sql, key);
        await recordCommand(sql, signedBy(), id, { kind: 'keys revoke' });
      },
    };
    const { id: revoked } = await insertApiKey(database, {
      ...{ accountId, keyHash: hashOfKey('gone'), lastFour: 'gone' },
    });
    await revokeApiKey(database, revoked);
    lies['revoked key'] = async (sql) => {
      await recordCommand(sql, signedBy(), revoked, { kind: 'keys revoke' });
      await sql`update api_keys set revoked_at = null where id = ${revoked}`;
    };
    for (const [name, lie] of Object.entries(lies)) {
      const message = expect.stringContaining('only together with the audit line');
      await expect(operator.begin(lie), name).rejects.toMatchObject({ code: '42501', message });
    }
  });

  it('changes nothing if the audit line is about something else', async () => {
    const needsAdmin = { code: '42501', message: expect.stringContaining('the role admin') };
    const { account: other } = await createTestAccount(database);
    const key = { accountId, keyHash: hashOfKey('hidden'), lastFour: 'dden' };
    for (const [subject, kind] of [
      ['bat_1', 'batches pause'],
      [other.id, 'keys create'],
      [accountId, 'account fund'],
    ] as const) {
      const added = operator.begin(async (sql) => {
        await recordCommand(sql, signedBy(), subject, { kind });
        await insertApiKey(sql, key);
      });
      await expect(added, kind).rejects.toMatchObject(needsAdmin);
      const limited = operator.begin(async (sql) => {
        await recordCommand(sql, signedBy(), subject, { kind });
        await setLimits(sql, { accountId, ...oneDollar });
      });
      await expect(limited, kind).rejects.toMatchObject(needsAdmin);
    }
    const { provider } = referenceSource;
    const named = operator.begin(async (sql) => {
      await recordCommand(sql, signedBy(), provider, { kind: 'rates use' });
      await sql`update rate_provider set operator = 'ada', reason = 'a test'`;
    });
    await expect(named).rejects.toMatchObject(needsAdmin);
    await operator.begin(async (sql) => {
      const added = await insertApiKey(sql, key);
      await recordCommand(sql, signedBy(), added.id, { kind: 'keys create' });
      await setLimits(sql, { accountId, ...oneDollar });
      await recordCommand(sql, signedBy(), accountId, { kind: 'limits set' });
    });
  });

  it('may change only tables that are guarded this way', async () => {
    const rows = await database<{ name: string; isGuarded: boolean }[]>`
      select relname::text as name, exists (
               select from pg_trigger g where g.tgrelid = c.oid and g.tginitdeferred
                  and g.tgfoid = 'require_operator'::regproc) as is_guarded
        from pg_class c
       where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
         and (has_any_column_privilege('corridor_operator', c.oid, 'insert, update')
           or has_table_privilege('corridor_operator', c.oid, 'delete'))`;
    expect(rows.map(({ name }) => name)).toContain('api_keys');
    expect(rows.filter(({ isGuarded }) => !isGuarded)).toEqual([]);
  });
});

const leg = (account: Posting['account'], currency: string, amountMinor: bigint): Posting => ({
  account,
  currency,
  amountMinor,
});

const pair = (
  kind: Entry['kind'],
  from: Posting['account'],
  to: Posting['account'],
  currency: string,
  amountMinor = 1n,
): Entry => ({
  kind,
  postings: [leg(from, currency, -amountMinor), leg(to, currency, amountMinor)],
});

/** The correction that an operator would have requested for these postings. */
const booking = ({ postings }: Entry): Correction => ({
  kind: 'book',
  postings: postings.map((posting) => ({ ...posting, amountMinor: `${posting.amountMinor}` })),
});

describe('a correction', () => {
  it('needs a command for its own payout that a second operator has approved', async () => {
    const [id, other] = [await payout(), await payout()];
    const command = { kind: 'correct', correction: cameBack } as const;
    await expect(post(id, lateReturn)).rejects.toMatchObject(checkViolation);
    for (const action of [
      'op_none',
      await line(id, { command }),
      await line(id, { outcome: 'proposed', command }),
      await approved(other, cameBack),
    ]) {
      await expect(post(id, lateReturn, action), action).rejects.toMatchObject(checkViolation);
    }
    expect(await entriesOf(database, id)).toEqual([]);
    await post(id, lateReturn, await approved(id, cameBack));
    expect(await entriesOf(database, id)).toMatchObject([{ kind: 'late_return' }]);
  });

  it('is posted once for each command, also where commands are alike', async () => {
    const id = await payout();
    const action = await approved(id, cameBack);
    await post(id, lateReturn, action);
    await expect(post(id, lateReturn, action)).rejects.toMatchObject(uniqueViolation);
    await post(id, lateReturn, await approved(id, cameBack));
    expect(await entriesOf(database, id)).toHaveLength(2);
  });

  it('cannot post a regular step of a payout', async () => {
    const id = await payout();
    const settle: Entry = { ...lateReturn, kind: 'settle' };
    await expect(post(id, settle, await approved(id, cameBack))).rejects.toThrow(
      'not what its payout',
    );
  });

  it('is posted exactly as it was approved', async () => {
    const id = await payout();
    const approvedEntry = pair('correction', 'losses', 'available', 'USD');
    const [a, b] = approvedEntry.postings;
    if (a === undefined || b === undefined) throw new Error('A pair has two postings.');
    const wrong: readonly (readonly [OperatorCommand | Correction, Entry])[] = [
      [{ kind: 'failAndRelease', statementDate: null }, approvedEntry],
      [{ kind: 'markSettled', evidence: 'a paper' }, lateReturn],
      [{ kind: 'retryNow' }, pair('suspense_clear', 'losses', 'suspense', 'EUR')],
      [cameBack, approvedEntry],
      [{ ...cameBack, amountMinor: '4' }, lateReturn],
      [cameBack, { ...lateReturn, kind: 'correction' }],
      [{ kind: 'clearSuspense', charge: 'house' }, lateReturn],
      [{ kind: 'clearSuspense', charge: 'customer' }, approvedEntry],
      [booking(lateReturn), lateReturn],
      [booking(approvedEntry), pair('correction', 'losses', 'available', 'USD', 2n)],
      [booking(approvedEntry), pair('correction', 'funding', 'available', 'USD')],
      [booking(approvedEntry), pair('correction', 'losses', 'suspense', 'EUR')],
      [booking(approvedEntry), { ...approvedEntry, postings: [] }],
      [booking(approvedEntry), { ...approvedEntry, postings: [a, b, a, b] }],
      [
        booking(approvedEntry),
        {
          ...approvedEntry,
          postings: [
            ...approvedEntry.postings,
            ...pair('correction', 'losses', 'suspense', 'USD').postings,
            ...pair('correction', 'suspense', 'losses', 'USD').postings,
          ],
        },
      ],
    ];
    for (const [command, entry] of wrong) {
      const posted = post(id, entry, await approved(id, command));
      await expect(posted, JSON.stringify(command)).rejects.toMatchObject(checkViolation);
    }
    expect(await entriesOf(database, id)).toEqual([]);
    await post(
      id,
      { ...approvedEntry, postings: [b, a] },
      await approved(id, booking(approvedEntry)),
    );
  });

  it('is the only entry of its command, whatever its kind', async () => {
    const id = await payout();
    const approvedEntry = pair('correction', 'losses', 'available', 'USD');
    const action = await approved(id, booking(approvedEntry));
    const owned = { mode: 'test', accountId, payoutId: id, action } as const;
    const two = postEntries(test.worker, [
      { ...owned, entry: approvedEntry },
      { ...owned, entry: pair('late_return', 'rail_settlement', 'suspense', 'EUR') },
    ]);
    await expect(two).rejects.toMatchObject(checkViolation);
    await post(id, approvedEntry, action);
    await expect(
      database`
        insert into ledger_entries (payout_id, kind, action_id, from_ids, to_ids, amounts_minor,
          account_id, currency)
        select ${id}, 'late_return', action_id, from_ids, to_ids, amounts_minor, account_id, currency
          from ledger_entries where action_id = ${action}`,
    ).rejects.toMatchObject(uniqueViolation);
  });

  it('writes off the whole amount in suspense, in the mode of its payout', async () => {
    const id = await payout();
    const lost = pair('correction', 'suspense', 'losses', 'EUR', 3n);
    await post(id, lost, await approved(id, booking(lost)));
    const house = { kind: 'clearSuspense', charge: 'house' } as const;
    const clear = (amountMinor: bigint) =>
      pair('suspense_clear', 'losses', 'suspense', 'EUR', amountMinor);
    for (const wrong of [
      clear(2n),
      clear(4n),
      pair('suspense_clear', 'funding', 'suspense', 'EUR', 3n),
    ]) {
      await expect(post(id, wrong, await approved(id, house))).rejects.toMatchObject(
        checkViolation,
      );
    }
    const action = await approved(id, house);
    const live = { entry: clear(3n), mode: 'live', accountId, payoutId: id, action } as const;
    await expect(postEntries(test.worker, [live])).rejects.toThrow('not what its payout');
    await post(id, clear(3n), action);
  });

  it('uses only accounts that its kind allows, and those of its own customer', async () => {
    const id = await payout();
    const { account: stranger } = await createTestAccount(database);
    for (const wrong of [
      pair('late_return', 'suspense', 'rail_settlement', 'EUR'),
      pair('late_return', 'suspense', 'available', 'USD'),
      pair('late_return', 'losses', 'suspense', 'EUR'),
      pair('suspense_clear', 'available', 'suspense', 'USD'),
      pair('suspense_clear', 'rail_settlement', 'suspense', 'EUR'),
      pair('correction', 'losses', 'available', 'EUR'),
      pair('correction', 'losses', 'rail_settlement', 'USD'),
    ]) {
      const action = await approved(id, booking(wrong));
      await expect(post(id, wrong, action), wrong.kind).rejects.toThrow('not what its');
    }
    const owned = { mode: 'test', payoutId: id, accountId: stranger.id } as const;
    const entry = pair('correction', 'losses', 'available', 'USD');
    const action = await approved(id, booking(entry));
    const posted = postEntries(database, [{ ...owned, entry, action }]);
    await expect(posted).rejects.toThrow('not what its payout');
    await post(id, entry, action);
  });

  it('reverses the named entry of its own payout, once', async () => {
    const [id, other] = [await payout(), await payout()];
    const action = await approved(id, cameBack);
    await post(id, lateReturn, action);
    await post(id, lateReturn, await approved(id, cameBack));
    const [entry, second] = await entriesOf(database, id);
    if (entry === undefined || second === undefined) throw new Error('Nothing was posted.');
    const reversal = reversalOf(entry);
    const undo = { kind: 'reverse', entry: `${entry.id}` } as const;
    const late = { ...lateReturn, reverses: entry.id };
    const wrong: readonly (readonly [string, Entry, Correction])[] = [
      [other, reversal, undo],
      [id, late, undo],
      [id, late, cameBack],
      [id, reversalOf(second), undo],
      [id, reversal, { ...undo, entry: `${second.id}` }],
      [id, reversal, booking(reversal)],
      [id, { kind: 'correction', postings: reversal.postings }, undo],
      [id, { ...reversal, postings: reversal.postings.slice(0, 0) }, undo],
      [
        id,
        { ...reversal, postings: [leg('losses', 'USD', -5n), leg('available', 'USD', 5n)] },
        undo,
      ],
    ];
    for (const [of, posted, command] of wrong) {
      const refused = post(of, posted, await approved(of, command));
      await expect(refused, JSON.stringify(command)).rejects.toMatchObject(checkViolation);
    }
    await post(id, reversal, await approved(id, undo));
    await expect(post(id, reversal, await approved(id, undo))).rejects.toMatchObject(
      uniqueViolation,
    );
    expect((await entriesOf(database, id)).at(-1)).toEqual({
      ...reversal,
      id: expect.any(BigInt),
      postings: expect.arrayContaining(
        reversal.postings.map((posting) => expect.objectContaining(posting)),
      ),
    });
  });
});
