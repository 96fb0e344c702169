import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { entriesOf, type OwnedEntry, postEntries } from '../../src/db/ledger.js';
import { insertRequest, recordAction } from '../../src/db/operatorActions.js';
import { type Entry, type Posting, reversalOf } from '../../src/domain/ledger.js';
import type { Correction, OperatorCommand } from '../../src/domain/operator.js';
import { signature, signedBy } from '../fixtures/operators.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

// What the database refuses of operators, whatever the code does.

let test: TestDatabase;
let database: Database;
let accountId: string;
const checkViolation = { code: '23514' };
const uniqueViolation = { code: '23505' };

beforeAll(async () => {
  test = await createTestDatabase();
  ({ database } = test);
  accountId = (await createTestAccount(database)).account.id;
});
afterAll(() => test.drop());

const payout = async () => (await requestPayout(database, accountId)).id;

type Line = Omit<Partial<Parameters<typeof recordAction>[1]>, 'command'> & {
  readonly command?: OperatorCommand;
};

/** Writes a line of the audit, of what was asked unless told otherwise; its id. */
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

/** What one person has proposed and another one carried out. */
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

/** What came back, as a person gives it and as it is posted. */
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

describe('a line of the audit', () => {
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
  ])('names no operator %j', async (operator) => {
    await expect(line(accountId, { operator })).rejects.toMatchObject(checkViolation);
  });

  it('is of a request that has the same id, and of that alone', async () => {
    const [id, other] = [await payout(), await payout()];
    const asked = { reason: signature.reason, command: { kind: 'retryNow' } } as const;
    const request = await insertRequest(database, id, signedBy(), asked.command);
    const record = {
      ...asked,
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
    // Neither the worker nor the API makes a request, whoever's key it has.
    for (const process of [test.worker, test.api]) {
      const made = insertRequest(process, id, signedBy(), asked.command);
      await expect(made).rejects.toMatchObject({ code: '42501' });
    }
    await recordAction(test.worker, { ...record, ...done });
  });

  it('has the customer’s account for a name, and customers and buttons can only cancel', async () => {
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

  it('approves what another person has proposed of the same payout, and nothing else', async () => {
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
    'stays as it is, and so does a request: %s',
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

  it('has a reason that shows as it is', async () => {
    for (const reason of [' ', 'x\ny', 'x\u001b[2K']) {
      const signed = { ...signedBy(), reason };
      const asked = insertRequest(database, await payout(), signed, { kind: 'retryNow' });
      await expect(asked).rejects.toMatchObject(checkViolation);
    }
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

/** What a person would have asked for, had they wanted these postings. */
const booking = ({ postings }: Entry): Correction => ({
  kind: 'book',
  postings: postings.map((posting) => ({ ...posting, amountMinor: `${posting.amountMinor}` })),
});

describe('a correction', () => {
  it('needs the command of a second person, of its own payout', async () => {
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

  it('of one kind is posted once for each command, and several times for several', async () => {
    const id = await payout();
    const action = await approved(id, cameBack);
    await post(id, lateReturn, action);
    await expect(post(id, lateReturn, action)).rejects.toMatchObject(uniqueViolation);
    await post(id, lateReturn, await approved(id, cameBack));
    expect(await entriesOf(database, id)).toHaveLength(2);
  });

  it('is no step of a payout, which has no command', async () => {
    const id = await payout();
    const settle: Entry = { ...lateReturn, kind: 'settle' };
    await expect(post(id, settle, await approved(id, cameBack))).rejects.toThrow(
      'not what its payout',
    );
  });

  it('is the one that was approved, and no other', async () => {
    const id = await payout();
    const given = pair('correction', 'losses', 'available', 'USD');
    const [a, b] = given.postings;
    if (a === undefined || b === undefined) throw new Error('A pair has two postings.');
    const wrong: readonly (readonly [OperatorCommand | Correction, Entry])[] = [
      [{ kind: 'failAndRelease', statementDate: null }, given],
      [{ kind: 'markSettled', evidence: 'a paper' }, lateReturn],
      [{ kind: 'retryNow' }, pair('suspense_clear', 'losses', 'suspense', 'EUR')],
      [cameBack, given],
      [{ ...cameBack, amountMinor: '4' }, lateReturn],
      [cameBack, { ...lateReturn, kind: 'correction' }],
      [{ kind: 'clearSuspense', charge: 'house' }, lateReturn],
      [{ kind: 'clearSuspense', charge: 'customer' }, given],
      [booking(lateReturn), lateReturn],
      [booking(given), pair('correction', 'losses', 'available', 'USD', 2n)],
      [booking(given), pair('correction', 'funding', 'available', 'USD')],
      [booking(given), pair('correction', 'losses', 'suspense', 'EUR')],
      [booking(given), { ...given, postings: [] }],
      [booking(given), { ...given, postings: [a, b, a, b] }],
      [
        booking(given),
        {
          ...given,
          postings: [
            ...given.postings,
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
    await post(id, { ...given, postings: [b, a] }, await approved(id, booking(given)));
  });

  it('is posted alone, and once for its command whatever its kind', async () => {
    const id = await payout();
    const given = pair('correction', 'losses', 'available', 'USD');
    const action = await approved(id, booking(given));
    const owned = { mode: 'test', accountId, payoutId: id, action } as const;
    const two = postEntries(test.worker, [
      { ...owned, entry: given },
      { ...owned, entry: pair('late_return', 'rail_settlement', 'suspense', 'EUR') },
    ]);
    await expect(two).rejects.toMatchObject(checkViolation);
    await post(id, given, action);
    await expect(
      database`
        insert into ledger_entries (payout_id, kind, action_id, from_ids, to_ids, amounts_minor,
          account_id, currency)
        select ${id}, 'late_return', action_id, from_ids, to_ids, amounts_minor, account_id, currency
          from ledger_entries where action_id = ${action}`,
    ).rejects.toMatchObject(uniqueViolation);
  });

  it('writes off what is in suspense, in the mode of its payout', async () => {
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

  it('is what its kind says, of its own customer', async () => {
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
    const given = postEntries(database, [{ ...owned, entry, action }]);
    await expect(given).rejects.toThrow('not what its payout');
    await post(id, entry, action);
  });

  it('reverses the entry that was named, of its own payout, and once', async () => {
    const [id, other] = [await payout(), await payout()];
    const action = await approved(id, cameBack);
    await post(id, lateReturn, action);
    await post(id, lateReturn, await approved(id, cameBack));
    const [entry, second] = await entriesOf(database, id);
    if (entry === undefined || second === undefined) throw new Error('nothing was posted');
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
