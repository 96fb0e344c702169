import type { Database } from '../db/client.js';
import type { LockedPayout } from '../db/payouts.js';
import { readEvidence } from '../db/statements.js';
import type { OperatorCommand, OperatorResult } from '../domain/operator.js';
import type { RailFact } from '../domain/payout.js';
import type { Rail } from '../rails/rail.js';
import { frozenOf } from './facts.js';
import { factOf, keyIsRemembered } from './rail.js';
import { readStatements } from './statements.js';

/** What a command comes to: what is applied to the payout, and what the person is told. */
export type Verdict = {
  readonly outcome: OperatorResult['outcome'];
  readonly detail: string;
  readonly fact?: RailFact;
  readonly unparks?: boolean;
  readonly settleBy?: string;
  /** Holds only while the rail has not been called; checked again under lock. */
  readonly ifUnsubmitted?: boolean;
};

const refused = (detail: string): Verdict => ({ outcome: 'refused', detail });
const done = (detail: string, effect: Omit<Verdict, 'outcome' | 'detail'>): Verdict => ({
  outcome: 'done',
  detail,
  ...effect,
});

/**
 * Judges a command by the row and by what the rail says now. A hold is released only after
 * the rail has rejected or voided the key, or its closed statements show that it did not pay.
 */
export async function judge(
  database: Database,
  command: OperatorCommand,
  row: LockedPayout,
  rail: Rail | undefined,
  key: string,
): Promise<Verdict> {
  if (command.kind === 'cancel') return judgeCancel(row, rail, key);
  if (rail === undefined) {
    return command.kind === 'retryNow' && row.status === 'pending'
      ? done('It is decided again.', { unparks: true })
      : refused('The payout was never accepted.');
  }
  switch (command.kind) {
    case 'retryNow':
      return judgeRetry(row, rail, key);
    case 'markSettled':
      return judgeSettled(row, rail, key, command.evidence);
    case 'failAndRelease':
      return judgeRelease(database, row, rail, key, command.statementDate);
    case 'extendDeadline':
      if (isOver(row)) return refused(`The payout is ${row.status}; there is nothing to wait for.`);
      if (row.settleBy !== null && new Date(command.until) <= row.settleBy) {
        return refused(`until: expected a time after ${row.settleBy.toISOString()}.`);
      }
      return done(`The rail has until ${command.until}.`, {
        unparks: true,
        settleBy: command.until,
      });
    case 'approve':
      return refused('A proposal cannot approve another one.');
  }
}

async function judgeCancel(
  row: LockedPayout,
  rail: Rail | undefined,
  key: string,
): Promise<Verdict> {
  const fact = { kind: 'voided', outcome: 'canceled', code: 'canceled' } as const;
  if (row.status === 'canceled') return done('The payout is canceled.', {});
  if (row.status !== 'processing' || rail === undefined) {
    return refused(`The payout is ${row.status}.`);
  }
  if (row.submitStartedAt === null) {
    return done('Canceled before the rail was called.', {
      fact,
      ifUnsubmitted: true,
      unparks: true,
    });
  }
  return (await rail.voidKey(key)) === 'voided'
    ? done('Canceled; the rail has voided its key.', { fact, unparks: true })
    : refused('The rail has taken the payout.');
}

async function judgeRetry(row: LockedPayout, rail: Rail, key: string): Promise<Verdict> {
  if (isOver(row)) {
    return refused(`The payout is ${row.status}. Confirm it with markSettled or failAndRelease.`);
  }
  const fact = await factAt(rail, key);
  if (fact !== undefined && (fact.kind !== 'accepted' || row.status === 'processing')) {
    return done(`The rail says: ${fact.kind}.`, { fact, unparks: true });
  }
  if (row.status === 'processing') {
    const { sinceFirstAttemptMs } = row;
    return sinceFirstAttemptMs === null || keyIsRemembered(rail, { sinceFirstAttemptMs })
      ? done('It is sent again under the same key.', { unparks: true })
      : refused('The rail does not know the key, and it is too old to be sent again.');
  }
  return Number(row.settleInMs ?? 0n) > 0
    ? done('The rail has no news; it is waited for again.', { unparks: true })
    : refused('The rail has no news, and its time is over. Extend the deadline to wait longer.');
}

async function judgeSettled(
  row: LockedPayout,
  rail: Rail,
  key: string,
  evidence: string,
): Promise<Verdict> {
  if (row.status === 'settled' || row.status === 'returned') {
    return done(`Confirmed: it is ${row.status}.`, { unparks: true });
  }
  if (isOver(row)) return refused(`The payout is ${row.status} and cannot be settled any more.`);
  const fact = await factAt(rail, key);
  if (fact?.kind === 'rejected' || fact?.kind === 'returned' || fact?.kind === 'voided') {
    return refused(`The rail contradicts: it says ${fact.kind} (${fact.code}).`);
  }
  const { receiveMinor, destinationCurrency } = frozenOf(row);
  return done(`Settled on evidence: ${evidence}`, {
    fact: { kind: 'settled', amountMinor: receiveMinor, currency: destinationCurrency },
    unparks: true,
  });
}

async function judgeRelease(
  database: Database,
  row: LockedPayout,
  rail: Rail,
  key: string,
  statementDate: string | null,
): Promise<Verdict> {
  if (row.status === 'failed' || row.status === 'canceled' || row.status === 'returned') {
    return done(`Confirmed: it is ${row.status}.`, { unparks: true });
  }
  if (isOver(row)) return refused(`The payout is ${row.status}; only a return gives money back.`);
  const fact = { kind: 'voided', outcome: 'failed', code: 'released_by_operator' } as const;
  if ((await rail.voidKey(key)) === 'voided') {
    return done('Released; the rail has voided its key.', { fact, unparks: true });
  }
  const known = await factAt(rail, key);
  if (known?.kind === 'rejected') {
    return done(`Released; the rail has rejected it (${known.code}).`, {
      fact: known,
      unparks: true,
    });
  }
  if (known?.kind === 'settled' || known?.kind === 'returned') {
    return refused(`The rail says ${known.kind}: use retryNow to take its word.`);
  }
  if (statementDate === null) {
    return refused(
      'The rail does not void the key any more. Give the day of a closed statement as evidence.',
    );
  }
  const gap = await gapInEvidence(database, row, rail, key, statementDate);
  return gap === undefined
    ? done(`Released; the statements up to ${statementDate} show no payment.`, {
        fact,
        unparks: true,
      })
    : refused(gap);
}

/**
 * Why the statements do not prove that the rail never paid: every day from the one before the
 * submission, for clocks differ, to the given one has to be closed without a payment, and the
 * rail's time has to be over by then.
 */
async function gapInEvidence(
  database: Database,
  row: LockedPayout,
  rail: Rail,
  key: string,
  statementDate: string,
): Promise<string | undefined> {
  const settleBy = row.settleBy?.toISOString().slice(0, 10) ?? '';
  if (statementDate < settleBy) {
    return `statementDate: expected ${settleBy} or later, for until then the rail may still pay.`;
  }
  await readStatements(database, rail);
  const first = row.submitStartedAt ?? row.requestedAt;
  const evidence = await readEvidence(database, rail.name, key, first, statementDate);
  if (evidence.payments > 0) return `The statements up to ${statementDate} show a payment.`;
  return evidence.openDays > 0
    ? `${evidence.openDays} of the days up to ${statementDate} have no closed statement yet.`
    : undefined;
}

async function factAt(rail: Rail, key: string): Promise<RailFact | undefined> {
  const [answer] = await rail.lookup([key]);
  return answer === undefined ? undefined : factOf(answer);
}

function isOver(row: LockedPayout): boolean {
  return row.status !== 'processing' && row.status !== 'sent';
}
