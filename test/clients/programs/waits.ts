import { Corridor, CorridorWaitTimeoutError } from '@corridor/client';

const corridor = new Corridor({ maxRetries: 0 });
const order = { beneficiary: 'bnf_1', source_currency: 'USD', amount: 2_000 };

async function endOf(waited: Promise<{ readonly id: string; readonly status: string }>) {
  try {
    const { id, status } = await waited;
    return [id, status];
  } catch (error) {
    if (!(error instanceof CorridorWaitTimeoutError)) throw error;
    const cause = error.cause instanceof Error ? error.cause.name : null;
    return [error.last.id, error.last.status, cause];
  }
}

const { payouts, batches } = corridor;
const ends = [
  await endOf(payouts.createAndWait(order, { timeoutMs: 30_000 })),
  await endOf(payouts.createAndWait(order, { timeoutMs: 1_000 })),
  await endOf(payouts.createAndWait(order, { timeoutMs: 30_000 })),
  await endOf(batches.wait('bat_1', { timeoutMs: 1_000 })),
];
console.log(JSON.stringify(ends));
