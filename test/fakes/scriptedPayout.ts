import { EventEmitter, once } from 'node:events';
import { retryLater } from '../../src/activities/failure.js';
import type { Activities } from '../../src/activities/index.js';
import type { PayoutSnapshot } from '../../src/activities/snapshot.js';
import type { PayoutStatus } from '../../src/domain/payout.js';

export type PayoutActivities = Pick<
  Activities,
  'decidePayouts' | 'submitPayouts' | 'applyRailEvents' | 'pollRail' | 'parkPayout'
>;

type Name = keyof PayoutActivities;

export type Call = { readonly name: Name; readonly input: unknown };

const fiveDaysMs = 5 * 24 * 60 * 60 * 1000;

/**
 * A payout without a database or a rail. Its row is a value in memory, which the activities change as
 * the real ones change the ledger, unless a test overrides them.
 */
export class ScriptedPayout {
  readonly id: string;
  /** Every attempt of every activity, in order. */
  readonly calls: Call[] = [];
  /** The statuses that the rail's facts lead to and that are not applied yet. */
  readonly inbox: PayoutStatus[] = [];
  row: PayoutSnapshot;
  readonly activities: PayoutActivities;
  readonly #called = new EventEmitter();

  constructor(id: string, does: Partial<PayoutActivities> = {}) {
    this.id = id;
    this.row = {
      id,
      status: 'pending',
      attention: null,
      hasPendingDeliveries: false,
      hasUnprocessedEvents: false,
      settleInMs: fiveDaysMs,
      settleBy: null,
      ...{ order: '100.00 USD to 85.20 EUR', accountId: 'acc_test' },
      ...{ isAccepted: true, isSubmitted: false },
    };
    const activities = { ...this.#ledger(), ...this.#rail(), ...does };
    this.activities = {
      decidePayouts: this.#recorded('decidePayouts', activities.decidePayouts),
      submitPayouts: this.#recorded('submitPayouts', activities.submitPayouts),
      applyRailEvents: this.#recorded('applyRailEvents', activities.applyRailEvents),
      pollRail: this.#recorded('pollRail', activities.pollRail),
      parkPayout: this.#recorded('parkPayout', activities.parkPayout),
    };
  }

  callsOf(name: Name): readonly Call[] {
    return this.calls.filter((call) => call.name === name);
  }

  /** Resolves at the next call of the activity. */
  async nextCall(name: Name): Promise<void> {
    await once(this.#called, name);
  }

  /** Changes the row's status and clears its attention, like a step that found something to do. */
  move(status: PayoutStatus): readonly PayoutSnapshot[] {
    const isSubmitted = this.row.isSubmitted || status !== 'processing';
    this.row = { ...this.row, status, attention: null, isSubmitted };
    return [this.row];
  }

  #ledger(): Pick<PayoutActivities, 'decidePayouts' | 'applyRailEvents' | 'parkPayout'> {
    return {
      decidePayouts: async () =>
        this.row.status === 'pending' ? this.move('processing') : [this.#withNews()],
      applyRailEvents: async () => {
        const status = this.inbox.shift();
        return status === undefined ? [this.row] : this.move(status);
      },
      parkPayout: async ({ reason, detail }) => {
        this.row = { ...this.row, attention: { reason, detail } };
        return [this.row];
      },
    };
  }

  #rail(): Pick<PayoutActivities, 'submitPayouts' | 'pollRail'> {
    return {
      submitPayouts: async () => this.move('sent'),
      pollRail: () => Promise.reject(retryLater('The rail has no news.')),
    };
  }

  #withNews(): PayoutSnapshot {
    return { ...this.row, hasUnprocessedEvents: this.inbox.length > 0 };
  }

  #recorded<I, O>(name: Name, does: (input: I) => Promise<O>): (input: I) => Promise<O> {
    return (input) => {
      this.calls.push({ name, input });
      this.#called.emit(name);
      return does(input);
    };
  }
}
