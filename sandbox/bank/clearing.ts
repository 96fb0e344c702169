import { randomBytes } from 'node:crypto';
import { createAgenda } from './agenda.js';
import {
  type BankTransfer,
  type Books,
  type CallbackEvent,
  type Known,
  nextStep,
} from './books.js';
import { startCallbacks } from './callbacks.js';
import type { Fact } from './facts.js';
import type { Journal } from './journal.js';
import { reasonOf, type Step } from './orders.js';

export type ClearingOptions = {
  readonly journal: Journal;
  readonly books: Books;
  readonly record: (fact: Fact) => CallbackEvent | undefined;
  readonly callbackUrl: string;
  readonly callbackSecret: string;
  readonly log: (message: string) => void;
};

/**
 * Executes the steps of accepted transfers and reports each to the service once it is on disk. Starts
 * with the pending transfers in the books and with events not yet acknowledged.
 */
export function startClearing(options: ClearingOptions) {
  const { journal, books, record, log } = options;
  // A rejected promise deliberately ends the process: a bank that cannot write must not continue.
  const agenda = createAgenda((keys) => void advance(keys));
  const callbacks = startCallbacks({
    url: options.callbackUrl,
    secret: options.callbackSecret,
    log,
    onAcknowledged: async (events) => {
      for (const { key, id } of events) record({ type: 'acknowledged', key, event: id });
      await journal.durable();
    },
  });

  function schedule(key: string): void {
    const next = nextStep(books.find(key));
    if (next !== undefined) agenda.add(Date.parse(next.transfer.takenAt) + next.step.afterMs, key);
  }

  function takeStep(key: string): CallbackEvent | undefined {
    const next = nextStep(books.find(key));
    if (next === undefined) throw new Error(`${key} was due without a step to take.`);
    const event = record(factOf(next.transfer, next.step));
    schedule(key);
    return event;
  }

  async function advance(keys: readonly string[]): Promise<void> {
    const events = keys.flatMap((key) => takeStep(key) ?? []);
    await journal.durable();
    report(events);
  }

  function report(events: readonly CallbackEvent[]): void {
    const doubled = events.filter(({ key }) => isDoubled(books.find(key)));
    const renamed = doubled.map((event) => ({ ...event, id: `${event.id}_again` }));
    for (const round of [events, doubled, doubled, renamed]) callbacks.send(round);
  }

  for (const key of books.pendingKeys()) schedule(key);
  report(books.unacknowledged());

  return {
    schedule,
    stop: async (): Promise<void> => {
      agenda.stop();
      await callbacks.stop();
    },
  };
}

function factOf({ order, bankReference = '' }: BankTransfer, step: Step): Fact {
  const { key, amount, currency } = order;
  const common = { bank_reference: bankReference, event: randomId('bev_') };
  switch (step.type) {
    case 'settled':
      return { type: step.type, key, amount, currency, ...common };
    case 'returned': {
      const { code } = step;
      return { type: step.type, key, amount, currency, ...common, code, reason: reasonOf(code) };
    }
    case 'rejected': {
      const { code } = step;
      return { type: step.type, ...order, ...common, code, reason: reasonOf(code) };
    }
  }
}

const isDoubled = (known: Known | undefined): boolean =>
  known !== undefined &&
  known.state !== 'voided' &&
  known.plan.entry === 'accepted' &&
  known.plan.areCallbacksDuplicated;

/** Random rather than sequential, because a new journal must never repeat the IDs of an old one. */
export const randomId = (prefix: string) => `${prefix}${randomBytes(10).toString('hex')}`;
