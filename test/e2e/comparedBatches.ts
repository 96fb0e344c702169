import { expect, onTestFinished } from 'vitest';
import { unbalancedCurrencies } from '../servers/database.js';
import { type Processes, startProcesses } from '../servers/processes.js';
import {
  distinctEvents,
  type Ending,
  expectedItems,
  type OrderedBatch,
  startOrderedBatch,
} from './orderedBatch.js';

/**
 * Two chunks of two groups each, the last of which is small. The same with 10,000 items takes too long for
 * every test run.
 */
export const items = Number.parseInt(process.env['CRASH_ITEMS'] ?? '1520', 10);

/**
 * A deadline for a slow and busy machine, six times what a quiet one takes, not the promised time: the
 * annotations report the actual time.
 */
const limitMs = 180_000;

/** For a crash as soon as a status is reached, which takes a minute at most, and the end. */
export const timeoutMs = limitMs + 60_000;

/** The processes, and a batch that none of them disturbed, which the others must equal. */
export type ComparedBatches = {
  readonly parts: Processes;
  readonly undisturbed: Ending;
  /** With `spreadS` the items settle over that many seconds instead of all at once. */
  readonly start: (spreadS?: number) => Promise<OrderedBatch>;
  /** Waits for the end after the last repair, and verifies that it equals that of the undisturbed batch. */
  readonly expectSameEnding: (batch: OrderedBatch, annotate: Annotate) => Promise<void>;
};

type Annotate = (message: string) => Promise<unknown>;

export async function startComparedBatches(): Promise<ComparedBatches> {
  const parts = await startProcesses();
  const undisturbed = await endingOfFirst(parts).catch(async (error: unknown) => {
    await parts.remove();
    throw error;
  });
  return {
    parts,
    undisturbed,
    start: async (spreadS) => {
      const batch = await startOrderedBatch(parts, items, spreadS);
      onTestFinished(() => batch.receiver.close());
      return batch;
    },
    expectSameEnding: async (batch, annotate) => {
      const repairedMs = performance.now();
      await batch.untilOver(limitMs);
      const seconds = ((performance.now() - repairedMs) / 1000).toFixed(1);
      await annotate(
        `over ${seconds} s after the last repair, ${batch.duplicates()} webhooks twice`,
      );
      expect(await batch.ending()).toEqual(undisturbed);
      const events = await parts.database<{ id: string }[]>`
        select d.event_id as id from deliveries d join events e on e.id = d.event_id
         where e.account_id = ${batch.accountId}`;
      expect(distinctEvents(batch.receiver)).toEqual(new Set(events.map(({ id }) => id)));
      expect(await unbalancedCurrencies(parts.database)).toEqual([]);
    },
  };
}

async function endingOfFirst(parts: Processes): Promise<Ending> {
  const first = await startOrderedBatch(parts, items);
  try {
    await first.untilOver(limitMs);
    const ending = await first.ending();
    expect(ending.items).toMatchObject(expectedItems(items));
    return ending;
  } finally {
    await first.receiver.close();
  }
}
