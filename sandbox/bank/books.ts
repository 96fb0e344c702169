import type { JournalLine, TransferOrder } from './facts.js';
import { type Plan, planOf, type Step } from './orders.js';

/** A key the bank knows. A voided key may never have had a transfer. */
export type Known = { readonly state: 'voided'; readonly at: string } | BankTransfer;

export type BankTransfer = {
  readonly state: 'accepted' | 'rejected' | 'settled' | 'returned';
  readonly order: TransferOrder;
  readonly plan: Plan;
  readonly takenAt: string;
  readonly stepsDone: number;
  /** When the transfer entered its current state. */
  readonly at: string;
  readonly bankReference: string | undefined;
  readonly code?: string;
  readonly reason?: string;
};

/** An event for the service, in the form sent in callbacks. Amounts are minor units. */
export type CallbackEvent = {
  readonly id: string;
  readonly key: string;
  readonly type: 'settled' | 'rejected' | 'returned';
  readonly amount: string;
  readonly currency: string;
  readonly code?: string;
  readonly reason?: string;
  readonly at: string;
  readonly bank_reference: string;
};

export type StatementEntry = {
  readonly key: string;
  readonly bank_reference: string;
  readonly direction: 'debit' | 'credit';
  readonly amount: string;
  readonly currency: string;
  readonly at: string;
  readonly code?: string;
};

/** The state of the bank, derived only from the journal's lines. */
export type Books = {
  /** Applies a fact. Returns the event to report to the service, if any. */
  apply(line: JournalLine): CallbackEvent | undefined;
  find(key: string): Known | undefined;
  /** Returns the keys that have steps left. */
  pendingKeys(): readonly string[];
  unacknowledged(): readonly CallbackEvent[];
  /** Returns the movements of a UTC day (`YYYY-MM-DD`), in order. */
  entriesOf(date: string): readonly StatementEntry[];
};

type Line<T extends JournalLine['type']> = Extract<JournalLine, { type: T }>;

export function createBooks(): Books {
  const known = new Map<string, Known>();
  const unacknowledged = new Map<string, CallbackEvent>();
  const days = new Map<string, StatementEntry[]>();

  function enter(line: Line<'settled' | 'returned'>, direction: 'debit' | 'credit'): void {
    const { key, bank_reference, amount, currency, at } = line;
    const code = line.type === 'returned' ? { code: line.code } : {};
    const entries = days.get(at.slice(0, 10)) ?? [];
    entries.push({ key, bank_reference, direction, amount, currency, at, ...code });
    days.set(at.slice(0, 10), entries);
  }

  /** Keeps an event until the service has acknowledged it. */
  function keep(event: CallbackEvent): CallbackEvent {
    unacknowledged.set(event.id, event);
    return event;
  }

  function reject(line: Line<'rejected'>): CallbackEvent | undefined {
    const { bank_reference, event, code, reason, at } = line;
    const transfer = known.get(line.key) ?? taken(line, line);
    if (transfer.state === 'voided') throw new Error(`${line.key} was rejected after a void.`);
    known.set(line.key, { ...transfer, ...done(transfer), state: 'rejected', at, code, reason });
    if (event === undefined || bank_reference === undefined) return undefined;
    return keep(eventOf(line, transfer, event, bank_reference));
  }

  function move(line: Line<'settled' | 'returned'>): CallbackEvent {
    const transfer = known.get(line.key);
    if (transfer === undefined || transfer.state === 'voided') {
      throw new Error(`${line.key} was ${line.type} without having been accepted.`);
    }
    // A return before settlement books both movements: the money left and came back at the same time.
    if (transfer.state === 'accepted') enter(line, 'debit');
    if (line.type === 'returned') enter(line, 'credit');
    const why = line.type === 'returned' ? { code: line.code, reason: line.reason } : {};
    known.set(line.key, { ...transfer, ...done(transfer), state: line.type, at: line.at, ...why });
    return keep(eventOf(line, transfer, line.event, line.bank_reference));
  }

  return {
    apply: (line) => {
      switch (line.type) {
        case 'transfer':
          known.set(line.key, taken(line, line));
          return undefined;
        case 'rejected':
          return reject(line);
        case 'settled':
        case 'returned':
          return move(line);
        case 'voided':
          known.set(line.key, { state: 'voided', at: line.at });
          return undefined;
        case 'acknowledged':
          unacknowledged.delete(line.event);
          return undefined;
      }
    },
    find: (key) => known.get(key),
    pendingKeys: () =>
      [...known].flatMap(([key, entry]) => (nextStep(entry) === undefined ? [] : [key])),
    unacknowledged: () => [...unacknowledged.values()],
    entriesOf: (date) => days.get(date) ?? [],
  };
}

function taken(
  { key, amount, currency, beneficiary, remittance }: TransferOrder,
  { at, bank_reference }: Pick<Line<'transfer' | 'rejected'>, 'at' | 'bank_reference'>,
): BankTransfer {
  return {
    state: 'accepted',
    order: { key, amount, currency, beneficiary, remittance },
    plan: planOf(remittance),
    takenAt: at,
    stepsDone: 0,
    at,
    bankReference: bank_reference,
  };
}

const done = (transfer: BankTransfer) => ({ stepsDone: transfer.stepsDone + 1 });

/** Returns the next step of a key, if any. */
export function nextStep(
  known: Known | undefined,
): { readonly transfer: BankTransfer; readonly step: Step } | undefined {
  if (known?.state !== 'accepted' && known?.state !== 'settled') return undefined;
  const step = known.plan.entry === 'accepted' ? known.plan.steps[known.stepsDone] : undefined;
  return step === undefined ? undefined : { transfer: known, step };
}

/** Returns the amount that the bank reports: the true one, unless the order simulates a wrong amount. */
export function reportedAmount({ order, plan }: BankTransfer): string {
  const offMinor = plan.entry === 'accepted' ? plan.misreportedMinor : 0n;
  return (BigInt(order.amount) + offMinor).toString();
}

function eventOf(
  line: Line<'rejected' | 'settled' | 'returned'>,
  transfer: BankTransfer,
  id: string,
  bankReference: string,
): CallbackEvent {
  const { key, type, currency, at } = line;
  const why = line.type === 'settled' ? {} : { code: line.code, reason: line.reason };
  const amount = reportedAmount(transfer);
  return { id, key, type, amount, currency, ...why, at, bank_reference: bankReference };
}
