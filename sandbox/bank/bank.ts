import { isDeepStrictEqual } from 'node:util';
import {
  type BankTransfer,
  createBooks,
  type Known,
  reportedAmount,
  type StatementEntry,
} from './books.js';
import { type ClearingOptions, randomId, startClearing } from './clearing.js';
import type { Fact, TransferOrder } from './facts.js';
import { planOf, reasonOf } from './orders.js';

/** The answer to one transfer. `unknown` simulates a bank that timed out. */
export type SubmitAnswer = { readonly key: string } & (
  | { readonly outcome: 'accepted'; readonly bank_reference: string }
  | { readonly outcome: 'rejected'; readonly code: string; readonly reason: string }
  | { readonly outcome: 'unknown' }
);

export type VoidAnswer =
  | { readonly key: string; readonly outcome: 'voided' }
  | { readonly key: string; readonly outcome: 'too_late'; readonly state: BankTransfer['state'] };

export type BankOptions = Omit<ClearingOptions, 'books' | 'record'> & {
  /** How long a transfer's key is recognised. After that, the same key creates a new transfer. */
  readonly keyRetentionMs: number;
};

export type Bank = ReturnType<typeof createBank>;

/**
 * The bank without its HTTP interface. Each method decides synchronously, so that of two requests with one
 * key the second sees the effect of the first, and answers only when everything the answer depends on is
 * on disk. Transfers pending in the journal continue at once.
 */
export function createBank(options: BankOptions) {
  const { journal } = options;
  const books = createBooks();
  for (const line of journal.written) books.apply(line);
  const record = (fact: Fact) => books.apply(journal.write(fact));
  const clearing = startClearing({ ...options, books, record });

  /** Returns what the bank knows of a key: a transfer within the retention time, a void for ever. */
  function recall(key: string): Known | undefined {
    const known = books.find(key);
    if (known === undefined || known.state === 'voided') return known;
    const isForgotten = Date.now() - Date.parse(known.takenAt) > options.keyRetentionMs;
    return isForgotten ? undefined : known;
  }

  function take(order: TransferOrder): SubmitAnswer {
    const { key } = order;
    const known = recall(key);
    if (known !== undefined) return answerAgain(known, order);
    const plan = planOf(order.remittance);
    switch (plan.entry) {
      case 'ignored':
        return { key, outcome: 'unknown' };
      case 'rejected': {
        const { code, reason } = plan;
        record({ type: 'rejected', ...order, code, reason });
        return { key, outcome: 'rejected', code, reason };
      }
      case 'accepted': {
        const bank_reference = randomId('SBX');
        record({ type: 'transfer', ...order, bank_reference });
        clearing.schedule(key);
        return plan.isAnswered
          ? { key, outcome: 'accepted', bank_reference }
          : { key, outcome: 'unknown' };
      }
    }
  }

  return {
    submit: async (orders: readonly TransferOrder[]): Promise<readonly SubmitAnswer[]> => {
      const answers = orders.map(take);
      await journal.durable();
      return answers;
    },
    lookup: async (keys: readonly string[]) => {
      const answers = keys.map((key) => lookupAnswer(key, recall(key)));
      await journal.durable();
      return answers;
    },
    /** Refuses the key for ever, even one never seen. Too late if an order with it has been decided. */
    voidKey: async (key: string): Promise<VoidAnswer> => {
      const known = recall(key);
      if (known === undefined) record({ type: 'voided', key });
      await journal.durable();
      return known === undefined || known.state === 'voided'
        ? { key, outcome: 'voided' }
        : { key, outcome: 'too_late', state: known.state };
    },
    /** Returns the statement of a UTC day (`YYYY-MM-DD`), closed once that day is past. */
    statement: async (date: string) => {
      const closed = date < new Date().toISOString().slice(0, 10);
      const entries = [...books.entriesOf(date)];
      await journal.durable();
      return { date, closed, entries, totals: totalsOf(entries) };
    },
    close: async (): Promise<void> => {
      await clearing.stop();
      await journal.close();
    },
  };
}

/** Repeats the first answer. Refuses an order with other fields under a known key as a duplicate. */
function answerAgain(known: Known, order: TransferOrder): SubmitAnswer {
  const { key } = order;
  const refuse = (code: string, reason = reasonOf(code)): SubmitAnswer => {
    return { key, outcome: 'rejected', code, reason };
  };
  if (known.state === 'voided') return refuse('DS02');
  if (!isDeepStrictEqual(known.order, order)) return refuse('AM05');
  // A late rejection does not change the first answer, because the transfer had been accepted.
  if (known.bankReference === undefined) return refuse(known.code ?? 'NARR', known.reason);
  return { key, outcome: 'accepted', bank_reference: known.bankReference };
}

function lookupAnswer(key: string, known: Known | undefined) {
  if (known === undefined) return { key, state: 'not_found' as const };
  if (known.state === 'voided') return { key, ...known };
  const { state, at, code, reason, bankReference, order } = known;
  const amount = reportedAmount(known);
  const returned = state === 'returned' ? { returned_amount: amount } : {};
  const { currency } = order;
  // JSON omits undefined fields.
  return {
    key,
    state,
    amount,
    currency,
    code,
    reason,
    bank_reference: bankReference,
    at,
    ...returned,
  };
}

type Totals = { readonly debits: string; readonly credits: string };

function totalsOf(entries: readonly StatementEntry[]): Readonly<Record<string, Totals>> {
  const currencies = new Set(entries.map((entry) => entry.currency));
  const sum = (currency: string, direction: StatementEntry['direction']) =>
    entries
      .filter((entry) => entry.currency === currency && entry.direction === direction)
      .reduce((total, entry) => total + BigInt(entry.amount), 0n)
      .toString();
  return Object.fromEntries(
    [...currencies].map((currency) => [
      currency,
      { debits: sum(currency, 'debit'), credits: sum(currency, 'credit') },
    ]),
  );
}
