import { describe, expect, test } from 'vitest';
import { faultOf, movesMoney, type OperatorCommand } from '../../src/domain/operator.js';
import { payoutStatuses } from '../../src/domain/payout.js';

const now = new Date('2026-11-21T12:00:00Z');
const who = { operator: 'grace', reason: 'The bank has called.' } as const;
const parked = 'outcome_unknown';

const commands: readonly OperatorCommand[] = [
  { kind: 'retryNow' },
  { kind: 'markSettled', evidence: 'MT940 of 20 November, line 7' },
  { kind: 'failAndRelease', statementDate: null },
  { kind: 'failAndRelease', statementDate: '2026-11-20' },
  { kind: 'extendDeadline', until: '2026-11-22T12:00:00.000Z' },
  { kind: 'approve', proposal: 'op_1' },
  { kind: 'cancel' },
];

function fault(command: OperatorCommand): string | undefined {
  return faultOf({ ...who, command }, parked, now);
}

describe.each(commands)('the command $kind', (command) => {
  test('is taken for a parked payout', () => {
    expect(fault(command)).toBeUndefined();
  });

  test('names who acts and why', () => {
    for (const blank of ['', ' \n']) {
      const nobody = { ...who, operator: blank, command };
      expect(faultOf(nobody, parked, now)).toBe(
        'operator: expected the name of the person who acts',
      );
      const noReason = { ...who, reason: blank, command };
      expect(faultOf(noReason, parked, now)).toBe('reason: expected why, in a sentence');
    }
  });

  test('needs a parked payout, but for the wish of the customer', () => {
    const expected =
      command.kind === 'cancel'
        ? undefined
        : 'the payout does not need a person: nothing is parked';
    expect(faultOf({ ...who, command }, null, now)).toBe(expected);
  });

  test('is judged by its form while nobody knows whether the payout is parked', () => {
    expect(faultOf({ ...who, command }, undefined, now)).toBeUndefined();
    expect(faultOf({ ...who, operator: '', command }, undefined, now)).toMatch(/^operator: /);
  });
});

describe('what a command carries', () => {
  test('has evidence for a settlement', () => {
    for (const evidence of ['', '  ']) {
      expect(fault({ kind: 'markSettled', evidence })).toBe(
        'evidence: expected what shows that the rail has paid',
      );
    }
  });

  test('has a day that exists as the date of a statement', () => {
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
        'statementDate: expected a day, YYYY-MM-DD',
      );
    }
    expect(fault({ kind: 'failAndRelease', statementDate: '2028-02-29' })).toBeUndefined();
  });

  test('has the id of a proposal to approve', () => {
    for (const proposal of ['', 'po_1', 'xop_1']) {
      expect(fault({ kind: 'approve', proposal })).toBe(
        'proposal: expected the id of a proposal (op_…)',
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
  ])('has a new deadline within 30 days: %s', (until) => {
    expect(fault({ kind: 'extendDeadline', until })).toBeUndefined();
  });

  test.each([
    ['', 'an ISO 8601 time with its offset, like 2026-12-01T12:00:00Z'],
    ['tomorrow', 'an ISO 8601 time'],
    ['2026-11-22', 'an ISO 8601 time'],
    ['2026-11-22T12:00:00', 'an ISO 8601 time with its offset'],
    ['2026-11-22 12:00:00Z', 'an ISO 8601 time'],
    ['2026-11-22T12:00:00Z, or so', 'an ISO 8601 time'],
    ['by 2026-11-22T12:00:00Z', 'an ISO 8601 time'],
    ['2026-11-31T12:00:00Z', 'an ISO 8601 time'],
    ['2026-11-22T25:00:00Z', 'an ISO 8601 time'],
    ['2026-11-22T12:00:00+15:00', 'an ISO 8601 time'],
    ['2026-11-21T12:00:00.000Z', 'a time that is still to come'],
    ['2026-11-21T11:59:59.999Z', 'a time that is still to come'],
    ['2026-12-21T12:00:00.001Z', 'a time within 30 days'],
  ])('has no deadline like %j', (until, expected) => {
    const found = fault({ kind: 'extendDeadline', until }) ?? '';
    expect(found.startsWith(`until: expected ${expected}`), found).toBe(true);
  });
});

test('only what pays or releases an open payout moves money', () => {
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
  ]);
  // A return that is too small to be booked by itself gives the whole amount back.
  const isShort = { status: 'settled', attentionReason: 'return_short' } as const;
  expect(movesMoney({ kind: 'failAndRelease', statementDate: null }, isShort)).toBe(true);
});
