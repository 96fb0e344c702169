import { type Sql, transaction } from '../db/client.js';
import { lockPayouts, notifyDecision } from '../db/payouts.js';
import { type Attention, isFinal } from '../domain/payout.js';
import { accept } from './acceptance.js';
import { applyFacts } from './applyFacts.js';
import type { AcceptanceDeps, ActivityDeps, DelivererDeps } from './deps.js';
import { failAfterAttempts } from './failure.js';
import { type PayoutSnapshot, park, snapshotOf } from './snapshot.js';

type LedgerDeps = AcceptanceDeps & DelivererDeps & Pick<ActivityDeps, 'database' | 'factRules'>;

export type DriverInput = { readonly driver: string; readonly ids: readonly string[] };
export type AcceptInput = DriverInput & { readonly workflowAgeMs: number };
export type ParkInput = Attention & { readonly driver: string; readonly id: string };

/** The activities that write the ledger. Each is one transaction and safe to repeat. */
export function ledgerActivities(deps: LedgerDeps) {
  const { database, deliverer } = deps;
  const step = async (
    work: (sql: Sql) => Promise<readonly PayoutSnapshot[]>,
  ): Promise<readonly PayoutSnapshot[]> => {
    const snapshots = await failAfterAttempts(transaction(database, work));
    deliverer.begin(snapshots);
    return snapshots;
  };
  return {
    /**
     * Decides the listed pending payouts in order, and debits those it accepts. Payouts decided
     * before are only reported; those of another driver are left out.
     */
    decidePayouts: async (input: AcceptInput): Promise<readonly PayoutSnapshot[]> => {
      const snapshots = await step((sql) => accept(sql, deps, input));
      // Nobody waits for the items of a batch. For one that is not decided here, nobody should wait longer.
      if (input.ids.includes(input.driver)) void notifyDecision(database, input.driver);
      return snapshots;
    },

    /** Applies the payouts' events in the inbox: moves, postings and webhook events together. */
    applyRailEvents: (input: DriverInput): Promise<readonly PayoutSnapshot[]> =>
      step((sql) => applyFacts(sql, deps.factRules, input)),

    /** Parks a payout for an operator. */
    parkPayout: ({ driver, id, reason, detail }: ParkInput): Promise<readonly PayoutSnapshot[]> =>
      transaction(database, async (sql) => {
        // Read again once locked: the first statement may have waited for a report, and not see it in the inbox.
        await lockPayouts(sql, driver, [id]);
        const rows = await lockPayouts(sql, driver, [id]);
        // The rail's final report may have been recorded just as its time ran out.
        const isLate = reason === 'settle_by_passed' && rows.some(({ status }) => isFinal(status));
        if (isLate) return rows.map(snapshotOf);
        const parked = await park(sql, rows.map(snapshotOf), () => ({ reason, detail }));
        // Events that could not be applied stay unprocessed: the workflow must not retry for ever.
        return reason === 'unexpected_failure'
          ? parked.map((snapshot) => ({ ...snapshot, hasUnprocessedEvents: false }))
          : parked;
      }),
  };
}
