import { EventEmitter, once } from 'node:events';
import type { Logger } from 'pino';
import type { Database } from '../db/client.js';
import { decisionChannel } from '../db/payouts.js';

export type DecisionWaits = ReturnType<typeof createDecisionWaits>;

/**
 * Lets requests wait until their payouts are decided. The decision's own transaction notifies, so a response
 * waits neither for the end of the workflow task nor for the bank, to which the same task submits the payout.
 * While the connection is lost, the driver reconnects: requests then wait until their limit and read the row.
 */
export function createDecisionWaits(database: Database, log: Logger) {
  // Any number of requests may wait. Two may wait for one payout, if a request is repeated.
  const decisions = new EventEmitter().setMaxListeners(0);
  const listening = database
    .listen(decisionChannel, (id) => decisions.emit(`payout ${id}`))
    .catch((err: unknown) => log.warn({ err }, 'decisions are not announced yet'));
  return {
    /**
     * Calls `begin`, which returns whether there is a decision to wait for, and resolves when the payout is
     * decided or `limitMs` have passed. Only the row tells which. A decision during `begin` counts.
     */
    until: async (payoutId: string, limitMs: number, begin: () => Promise<boolean>) => {
      await listening;
      const signal = AbortSignal.timeout(limitMs);
      const ended = once(decisions, `payout ${payoutId}`, { signal }).catch(() => undefined);
      if (await begin()) await ended;
    },
  };
}
