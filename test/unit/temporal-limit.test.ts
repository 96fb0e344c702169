import { setTimeout as delay } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { expect, it } from 'vitest';
import { newId } from '../../src/db/id.js';
import { startAndAwaitDecision } from '../../src/temporal/wakePayout.js';

/** The client repeats after about 0.3, 0.8 and 1.6 s: this is always within its third pause. */
const limitMs = 1_000;

/** The shortest third pause ends 250 ms after the limit; timers keep their order on any machine. */
const toleranceMs = 150;

it('a call to Temporal ends at its limit while the client pauses before it repeats', async () => {
  // Nothing listens on this port, so each attempt fails at once.
  const connection = Connection.lazy({ address: '127.0.0.1:1' });
  const client = new Client({ connection });
  const payout = {
    id: newId('payout'),
    accountId: newId('account'),
    mode: 'test',
    batchId: null,
    sourceCurrency: 'USD',
    destinationCurrency: 'EUR',
    settleBy: null,
  } as const;
  const call = startAndAwaitDecision(client, payout, limitMs).catch((error: unknown) => error);
  const late = delay(limitMs + toleranceMs, 'late');
  expect(await Promise.race([call, late])).toMatchObject({
    message: 'Temporal did not answer within 1000 ms.',
  });
  await connection.close();
});
