import { describe, expect, test } from 'vitest';
import { type CommandState, offersOf, refusalOf, waitOf } from '../../src/domain/commandRules.js';
import {
  type Correction,
  faultOf,
  mayApprove,
  movesMoney,
  needsApproval,
  type OperatorCommand,
  type PostingText,
  requiresParkedPayout,
} from '../../src/domain/operator.js';
import { type AttentionReason, payoutStatuses } from '../../src/domain/payout.js';
import { reasonsOrNone } from '../fixtures/attentionReasons.js';
import { invisibleLines, legibleLines } from '../fixtures/lines.js';

const now = new Date('2026-11-21T12:00:00Z');

const commands: readonly OperatorCommand[] = [
  { kind: 'retryNow' },
  { kind: 'markSettled', evidence: 'MT940 of 20 November, line 7' },
  { kind: 'failAndRelease', statementDate: null },
  { kind: 'failAndRelease', statementDate: '2026-11-20' },
  { kind: 'extendDeadline', until: '2026-11-22T12:00:00.000Z' },
  { kind: 'approve', proposal: `op_${'0'.repeat(26)}` },
  { kind: 'cancel' },
  { kind: 'correct', correction: { kind: 'lateReturn', amountMinor: '100' } },
  { kind: 'correct', correction: { kind: 'book', postings: booked('1', '-1') } },
];

function booked(...amounts: readonly string[]): readonly PostingText[] {
  return amounts.map((amountMinor) => ({ account: 'losses', currency: 'EUR', amountMinor }));
}

const fault = (command: OperatorCommand) => faultOf(command, now);

test.each(commands)('the command $kind of this list is valid', (command) => {
  expect(fault(command)).toBeUndefined();
});

test.each<OperatorCommand>([
  { kind: 'approve', proposal: 'op_DE89370400440532013000' },
  { kind: 'correct', correction: { kind: 'reverse', entry: 'Ada Lovelace' } },
  { kind: 'markSettled', evidence: 'MT940\nbarbara: approved' },
  { kind: 'markSettled', evidence: 'MT940 \u001b[1A\u001b[2K' },
  { kind: 'markSettled', evidence: 'MT940 \u202e1,00' },
  { kind: 'markSettled', evidence: 'MT940 1\u200b00' },
])('text that could forge a line or name a person is refused: %j', (command) => {
  expect(fault(command)).toMatch(/ expects /);
});

test.each(invisibleLines)('an invisible line of %j is refused', (evidence) => {
  expect(fault({ kind: 'markSettled', evidence })).toMatch(/ expects /);
});

test.each(legibleLines)('%j is legible and accepted', (evidence) => {
  expect(fault({ kind: 'markSettled', evidence })).toBeUndefined();
});

test('only cancel and correct are allowed for payouts that are not parked', () => {
  const anywhere = commands.filter((command) => !requiresParkedPayout(command.kind));
  expect(anywhere.map(({ kind }) => kind)).toEqual(['cancel', 'correct', 'correct']);
});

describe('the commands that an operator is offered', () => {
  const states = payoutStatuses.flatMap((status) =>
    reasonsOrNone.flatMap((attentionReason) =>
      [true, false].map((isSubmitted): CommandState => {
        const isAccepted = status !== 'pending';
        return { id: 'po_1', status, attentionReason, isAccepted, isSubmitted, settleBy: null };
      }),
    ),
  );
  const kindOf: Readonly<Record<string, OperatorCommand['kind']>> = {
    ...{ retry: 'retryNow', settle: 'markSettled', fail: 'failAndRelease', cancel: 'cancel' },
    ...{ extend: 'extendDeadline', 'late-return': 'correct', 'clear-suspense': 'correct' },
    correct: 'correct',
  };

  test.each(states)(
    'for $status, $attentionReason, $isSubmitted: none that would be refused',
    (at) => {
      for (const suspenseMinor of [-1n, 0n, 1n]) {
        for (const { command: line, does } of offersOf(at, suspenseMinor)) {
          const [, , verb = '', id] = line.split(' ');
          const kind = kindOf[verb];
          expect(id).toBe('po_1');
          expect(kind && refusalOf(kind, at)).toBeUndefined();
          const command = commands.find((one) => one.kind === kind);
          const isApproved = command !== undefined && needsApproval(command, at, 1n, 1n);
          expect(does.includes('a second operator must approve')).toBe(isApproved);
          if (suspenseMinor !== 0n) expect(['settle', 'fail']).not.toContain(verb);
          // Both are refused where nothing is missing.
          if (suspenseMinor >= 0n) expect(['late-return', 'clear-suspense']).not.toContain(verb);
        }
      }
    },
  );

  test.each(states.filter(({ attentionReason, isAccepted }) => attentionReason && isAccepted))(
    'for $status, $attentionReason, $isSubmitted: at least one, and who can end the wait',
    (at) => {
      expect(offersOf(at, at.attentionReason === 'paid_after_release' ? 1n : 0n)).not.toEqual([]);
      expect(waitOf(at)?.who).toContain('an operator');
    },
  );

  test.each(payoutStatuses)(
    'exclude those for parked payouts when the payout is not parked and %s',
    (status) => {
      const at = { id: 'po_1', status, attentionReason: null, isAccepted: true } as const;
      const offers = offersOf({ ...at, isSubmitted: true, settleBy: null }, 0n);
      expect(offers.map(({ command }) => command.split(' ')[2])).toEqual(
        status === 'processing' ? ['cancel'] : [],
      );
    },
  );
});

test('nobody cancels an undecided payout that the rail has reported on', () => {
  const at = { id: 'po_1', status: 'pending', isAccepted: false, isSubmitted: false } as const;
  const refusal = (attentionReason: AttentionReason) =>
    refusalOf('cancel', { ...at, attentionReason, settleBy: null });
  expect(refusal('contradiction')).toContain('an operator has to ask the bank');
  expect(refusal('unexpected_failure')).toBeUndefined();
});

test('waiting is no answer to an order that cannot be sent again', () => {
  const at = { id: 'po_1', status: 'processing', attentionReason: 'outcome_unknown' } as const;
  const offers = offersOf({ ...at, isAccepted: true, isSubmitted: true, settleBy: null }, 0n);
  expect(offers.map(({ command }) => command.split(' ')[2])).toEqual(['retry', 'settle', 'fail']);
});

describe('the input of a command', () => {
  test('has sums that the ledger can hold', () => {
    const correct = (correction: Correction) => fault({ kind: 'correct', correction });
    const most = '9'.repeat(18);
    expect(correct({ kind: 'lateReturn', amountMinor: most })).toBeUndefined();
    for (const amountMinor of ['0', '-1', `${most}0`]) {
      expect(correct({ kind: 'lateReturn', amountMinor })).toContain('--amount expects a sum');
    }
    const book = (minor: string) =>
      correct({
        kind: 'book',
        postings: booked(minor, minor.startsWith('-') ? minor.slice(1) : `-${minor}`),
      });
    expect(book(`-${most}`)).toBeUndefined();
    expect(book(`${most}0`)).toContain('--postings expects sums other than zero');
  });

  test('needs evidence for a settlement', () => {
    for (const evidence of ['', '  ']) {
      expect(fault({ kind: 'markSettled', evidence })).toBe(
        '--evidence expects the proof that the rail has paid, one line of text without control or invisible characters.',
      );
    }
  });

  test('needs an existing day as the date of a statement', () => {
    for (const statementDate of [
      '',
      '2026-11',
      '2026-11-20T00:00:00Z',
      ' 2026-11-20',
      '20.11.2026',
      '2026-13-01',
      '2026-02-31',
    ]) {
      expect(fault({ kind: 'failAndRelease', statementDate })).toBe(
        '--statement-date expects a day, YYYY-MM-DD.',
      );
    }
    expect(fault({ kind: 'failAndRelease', statementDate: '2028-02-29' })).toBeUndefined();
  });

  test('needs postings that sum to zero in each currency', () => {
    const book = (...postings: readonly PostingText[]) =>
      fault({ kind: 'correct', correction: { kind: 'book', postings } });
    expect(book(...booked('1', '2', '-3'))).toBeUndefined();
    expect(book(...booked('1', '-3'))).toBe(
      '--postings expects a sum of zero in EUR, not -2 minor units.',
    );
    const yen = { account: 'suspense', currency: 'JPY', amountMinor: '-1' } as const;
    expect(book(...booked('1'), yen)).toMatch('in EUR, not 1 ');
    expect(book(yen, ...booked('1', '-1'))).toMatch('in JPY, not -1 ');
  });

  test('needs the id of a proposal to approve', () => {
    for (const proposal of ['', 'po_1', 'xop_1']) {
      expect(fault({ kind: 'approve', proposal })).toBe(
        '--proposal expects the id of a proposal (op_…).',
      );
    }
  });

  test.each([
    '2026-11-22T12:00Z',
    '2026-11-22T12:00:00+02:00',
    '2026-11-22T12:00:00.123456789-14:00',
    // One millisecond from now, and 30 days.
    '2026-11-21T12:00:00.001Z',
    '2026-12-21T12:00:00.000Z',
    '2026-11-21T13:30:00+01:00',
  ])('may have a new deadline within 30 days: %s', (until) => {
    expect(fault({ kind: 'extendDeadline', until })).toBeUndefined();
  });

  test.each([
    ['', 'an ISO 8601 time with an offset, such as 2026-12-01T12:00:00Z'],
    ['tomorrow', 'an ISO 8601 time'],
    ['2026-11-22', 'an ISO 8601 time'],
    ['2026-11-22T12:00:00', 'an ISO 8601 time with an offset'],
    ['2026-11-22 12:00:00Z', 'an ISO 8601 time'],
    ['2026-11-22T12:00:00Z, or so', 'an ISO 8601 time'],
    ['by 2026-11-22T12:00:00Z', 'an ISO 8601 time'],
    ['2026-11-31T12:00:00Z', 'an ISO 8601 time'],
    ['2026-11-22T25:00:00Z', 'an ISO 8601 time'],
    ['2026-11-22T12:00:00+15:00', 'an ISO 8601 time'],
    ['2026-11-21T12:00:00.000Z', 'a time in the future'],
    ['2026-11-21T11:59:59.999Z', 'a time in the future'],
    ['2026-12-21T12:00:00.001Z', 'a time within 30 days'],
  ])('may not have a deadline like %j', (until, expected) => {
    const found = fault({ kind: 'extendDeadline', until }) ?? '';
    expect(found.startsWith(`--until expects ${expected}`), found).toBe(true);
  });
});

test('only commands that pay or release an open payout move money', () => {
  const moving = payoutStatuses.flatMap((status) =>
    commands
      .filter((command) => movesMoney(command, { status, attentionReason: 'contradiction' }))
      .map(({ kind }) => [kind, status]),
  );
  expect(moving).toEqual([
    ['markSettled', 'processing'],
    ['failAndRelease', 'processing'],
    ['failAndRelease', 'processing'],
    ['markSettled', 'sent'],
    ['failAndRelease', 'sent'],
    ['failAndRelease', 'sent'],
    // Where the rail's reports are in dispute, both commands decide about a possible return.
    ['markSettled', 'settled'],
    ['failAndRelease', 'settled'],
    ['failAndRelease', 'settled'],
  ]);
  // A return too small to be posted automatically refunds the whole amount.
  const isShort = { status: 'settled', attentionReason: 'return_short' } as const;
  expect(movesMoney({ kind: 'failAndRelease', statementDate: null }, isShort)).toBe(true);
});

describe('a second person', () => {
  const sent = { status: 'sent', attentionReason: 'settle_by_passed' } as const;
  const settle = { kind: 'markSettled', evidence: 'a statement' } as const;

  test.each([
    [1_000n, false],
    [1_001n, true],
    [undefined, true],
  ])('has to approve a settlement of %s cents: %s', (euroCents, isNeeded) => {
    expect(needsApproval(settle, sent, euroCents, 1_000n)).toBe(isNeeded);
  });

  test('is any operator but the one who proposed it', () => {
    const proposal = { operator: 'ada' };
    expect(mayApprove(proposal, 'ada')).toBe(false);
    expect(mayApprove(proposal, 'barbara')).toBe(true);
  });

  test('is not needed for commands that move no money', () => {
    expect(needsApproval({ kind: 'retryNow' }, sent, 1_001n, 1_000n)).toBe(false);
    expect(needsApproval({ kind: 'cancel' }, sent, undefined, 1_000n)).toBe(false);
  });

  const releasedStatuses = ['failed', 'canceled', 'returned'] as const;
  const paidReasons = ['amount_mismatch', 'paid_after_release'] as const;
  test.each(
    releasedStatuses.flatMap((status) => paidReasons.map((reason) => [status, reason] as const)),
  )('has to approve whatever closes a payout that is %s, with %s', (status, attentionReason) => {
    const released = { status, attentionReason } as const;
    expect(needsApproval(settle, released, 0n, 1_000n)).toBe(true);
    expect(needsApproval({ kind: 'retryNow' }, released, 0n, 1_000n)).toBe(false);
  });

  test('has to approve the end of a released payout that the rail may have paid, and no other', () => {
    const isNeeded = (attentionReason: AttentionReason) =>
      needsApproval(settle, { status: 'failed', attentionReason }, 0n, 1_000n);
    // A payment may be a later line of any dispute.
    expect(isNeeded('contradiction')).toBe(true);
    expect(isNeeded('amount_mismatch')).toBe(true);
    expect(isNeeded('paid_after_release')).toBe(true);
    expect(isNeeded('unexpected_failure')).toBe(false);
  });

  test('has to approve the end of a dispute after a reversed settlement, but not after a return', () => {
    const isNeeded = (statusReason: string) =>
      needsApproval(
        settle,
        { status: 'returned', statusReason, attentionReason: 'contradiction' },
        0n,
        1_000n,
      );
    expect([isNeeded('corrected'), isNeeded('AC04')]).toEqual([true, false]);
  });

  test('has to approve the decision of a payout that the rail has reported on', () => {
    const isNeeded = (attentionReason: AttentionReason) =>
      needsApproval({ kind: 'retryNow' }, { status: 'pending', attentionReason }, 0n, 1_000n);
    expect([isNeeded('contradiction'), isNeeded('unexpected_failure')]).toEqual([true, false]);
  });

  test('has to approve every correction of the books', () => {
    const reverse = { kind: 'correct', correction: { kind: 'reverse', entry: '1' } } as const;
    expect(needsApproval(reverse, sent, 0n, 1_000n)).toBe(true);
  });
});
