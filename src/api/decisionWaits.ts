import { EventEmitter, once } from 'node:events';
import type { Logger } from 'pino';
import type { Database } from '../db/client.js';
import { decidedOf, decisionChannel } from '../db/payouts.js';

/** Pause between two polls, which notice the decisions whose notification did not arrive. */
const pollPauseMs = 200;

export type DecisionWaits = ReturnType<typeof createDecisionWaits>;

/**
 * Lets requests wait until their payouts are decided. The decision is notified once it is committed, so a
 * response waits neither for the end of the workflow task nor for the bank, to which the same task submits
 * the payout. The driver listens again if its connection closes, but not if the server refuses to listen, as
 * a standby does before it is promoted, or if the connection is lost without a sign. So one statement also
 * polls for all requests that wait in this process.
 */
export function createDecisionWaits(database: Database, log: Logger) {
  // Any number of requests may wait. Two may wait for one payout, if a request is repeated.
  const decisions = new EventEmitter().setMaxListeners(0);
  const poll = async () => {
    const waiting = decisions.eventNames().map(String);
    // If a poll fails, the next one follows, and the read of each request reports the error.
    const decided = waiting.length === 0 ? [] : await decidedOf(database, waiting).catch(() => []);
    for (const { id } of decided) decisions.emit(id);
    setTimeout(() => void poll(), pollPauseMs).unref();
  };
  void poll();
  database
    // Any login may notify, and the emitter would take `error` for a failure of all waits.
    .listen(decisionChannel, (id) => id !== 'error' && decisions.emit(id))
    .catch((err: unknown) =>
      log.warn({ err }, 'decision notifications do not work; decisions are polled instead'),
    );
  return {
    /** Resolves when the payout is decided or `limitMs` have passed. Only the row tells which. */
    until: (payoutId: string, limitMs: number) =>
      once(decisions, payoutId, { signal: AbortSignal.timeout(limitMs) }).catch(() => undefined),
  };
}
