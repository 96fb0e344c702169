import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { newId } from '../../src/db/id.js';
import { connectTemporal } from '../../src/temporal/client.js';
import { startPayout } from '../../src/temporal/workflowCalls.js';

/** Temporal's client would retry after 0.3, 0.8 and 1.6 s, and not end before 1.29 s. */
const limitMs = 1_000;

/** Timers keep their order on any machine. */
const toleranceMs = 250;

it('a call to Temporal times out while the server is unreachable', async () => {
  // No server listens on this port, so each attempt fails immediately.
  const client = connectTemporal({
    TEMPORAL_ADDRESS: '127.0.0.1:1',
    TEMPORAL_NAMESPACE: 'default',
  });
  const payout = {
    id: newId('payout'),
    accountId: newId('account'),
    mode: 'test',
    batchId: null,
    sourceCurrency: 'USD',
    destinationCurrency: 'EUR',
    settleBy: null,
    fixedSide: 'source',
    ...{ amount: 125_000n, sourceMinor: null, receiveMinor: null },
  } as const;
  const call = startPayout(client, payout, limitMs).catch((error: unknown) => error);
  const late = delay(limitMs + toleranceMs, 'late');
  expect(await Promise.race([call, late])).toBeInstanceOf(Error);
  await call;
  await client.connection.close();
});
