import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { untilStatus } from '../fixtures/client.js';
import { historyOf, openPayer, type Payer } from '../fixtures/payer.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let payer: Payer;

beforeAll(async () => {
  system = await startSystem();
});
beforeEach(async () => {
  payer = await openPayer(system);
});
afterAll(() => system.stop());

/** Requests a payout with this preference; returns the answer and its duration. */
async function send(
  prefer: string,
  reference: string,
  options: { readonly amount?: string; readonly idempotencyKey?: string } = {},
) {
  const startedMs = performance.now();
  const answer = await payer.ask(reference, { ...options, headers: { prefer } });
  const elapsedMs = performance.now() - startedMs;
  return { answer, elapsedMs, applied: answer.headers.get('preference-applied') };
}

/** Longer than a decision on a busy machine, but shorter than the waits that must not happen. */
const soonMs = 3_500;

describe('Prefer: wait', () => {
  it('returns the settled payout in one call', async () => {
    const { answer, applied, elapsedMs } = await send('wait=5', 'an ordinary payout');
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({
      status: 'settled',
      received: answer.body['receive_amount'],
    });
    expect(historyOf(answer)).toEqual(['pending', 'processing', 'sent', 'settled']);
    expect(applied).toBe('wait=5');
    // It stops waiting when there is nothing left to wait for.
    expect(elapsedMs).toBeLessThan(4_900);
  });

  it('returns the current state when the time is over', async () => {
    const { answer, applied, elapsedMs } = await send('wait=1', 'simulate: delay 10s');
    expect(answer.status).toBe(201);
    expect(['processing', 'sent']).toContain(answer.body['status']);
    expect(answer.body).toMatchObject({ received: null, settled_at: null });
    expect(applied).toBe('wait=1');
    expect(elapsedMs).toBeGreaterThanOrEqual(1_000);
    expect(elapsedMs).toBeLessThan(soonMs);
  });

  it('is found among other preferences, and is capped at 30 s', async () => {
    const { answer, applied } = await send('respond-async, wait=86400', 'an ordinary payout');
    expect(answer.body).toMatchObject({ status: 'settled' });
    expect(applied).toBe('wait=30');
  });

  it.each([
    'wait',
    'wait=',
    'wait=soon',
    'wait=-5',
    'wait=1.5',
    'wait=1e1',
    'wait=0',
    'wait=9999999',
    'waiting=5',
    'return=minimal',
  ])('ignores %s', async (prefer) => {
    const { answer, applied, elapsedMs } = await send(prefer, 'simulate: delay 10s');
    expect(answer.status).toBe(201);
    expect(['processing', 'sent']).toContain(answer.body['status']);
    expect(applied).toBeNull();
    expect(elapsedMs).toBeLessThan(soonMs);
  });

  it('returns a refusal at once', async () => {
    const { answer, elapsedMs } = await send('wait=20', 'too much', { amount: '100000000' });
    expect(answer).toMatchObject({ status: 422, body: { code: 'insufficient_funds' } });
    expect(elapsedMs).toBeLessThan(soonMs);
  });

  it('returns a rejection by the bank as soon as it is known', async () => {
    const { answer, elapsedMs } = await send('wait=20', 'simulate: reject AC04');
    expect(answer).toMatchObject({
      status: 201,
      body: { status: 'failed', status_reason: 'AC04' },
    });
    expect(elapsedMs).toBeLessThan(soonMs);
  });

  it('applies to a repeated request with the same key', async () => {
    const idempotencyKey = crypto.randomUUID();
    const first = await payer.ask('simulate: delay 1s', { idempotencyKey });
    expect(first.body['status']).not.toBe('settled');
    const { answer, applied } = await send('wait=10', 'simulate: delay 1s', { idempotencyKey });
    expect(answer.body).toMatchObject({ id: first.body['id'], status: 'settled' });
    expect(answer.headers.get('idempotent-replayed')).toBe('true');
    expect(applied).toBe('wait=10');
    await untilStatus(payer.client, String(first.body['id']), 'settled');
  });
});
