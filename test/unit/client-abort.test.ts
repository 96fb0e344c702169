import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { Corridor } from '../../clients/typescript/src/client.js';
import { webhookExample } from '../../src/contract/webhookExamples.js';

const order = { beneficiary: 'bnf_1', source_currency: 'USD', amount: 2_000 };
const reason = new Error('The user has left.');
const { data } = webhookExample('payout.sent', '2026-11-15');
const sent = z.looseObject({ id: z.string() }).parse(data);

/** A client whose requests are answered by a function, and the idempotency keys that it has sent. */
function openClient(answer: (signal: AbortSignal) => Promise<Response> | Response) {
  const keys: (string | null)[] = [];
  const corridor = new Corridor({
    ...{ apiUrl: 'http://corridor.test', apiKey: 'key', maxRetries: 1 },
    fetch: async (_url, init) => {
      keys.push(new Headers(init?.headers).get('idempotency-key'));
      return answer(init?.signal ?? AbortSignal.any([]));
    },
  });
  return { corridor, keys };
}

/** Never responds; rejects like fetch when the signal is aborted. */
function unanswered(signal: AbortSignal): Promise<Response> {
  return new Promise((_resolve, reject) => {
    const end = () => reject(signal.reason instanceof Error ? signal.reason : reason);
    signal.addEventListener('abort', end);
  });
}

const problem = {
  ...{ type: '/docs/errors#x', title: 'x', request_id: 'req_1', detail: 'x', errors: [] },
};
const refused = (code: string, status: number) =>
  Response.json({ ...problem, code, status }, { status });

describe('a write of the TypeScript client that is aborted', () => {
  it('returns the response that arrived just before', async () => {
    const leaving = new AbortController();
    const { corridor } = openClient(() => {
      leaving.abort(reason);
      return Response.json(sent, { status: 201 });
    });
    const payout = await corridor.payouts.create(order, { signal: leaving.signal });
    expect(payout.id).toBe(sent.id);
  });

  it('throws the refusal that arrived just before', async () => {
    const leaving = new AbortController();
    const { corridor } = openClient(() => {
      leaving.abort(reason);
      return refused('insufficient_funds', 422);
    });
    const creating = corridor.payouts.create(order, { signal: leaving.signal });
    await expect(creating).rejects.toMatchObject({ code: 'insufficient_funds' });
  });

  it.each([
    ['while the request is in flight', unanswered],
    ['between two attempts', () => refused('service_unavailable', 503)],
  ] as const)('reports its idempotency key when aborted %s', async (_when, answer) => {
    const leaving = new AbortController();
    const { corridor, keys } = openClient((signal) => {
      // After the client has finished processing this answer.
      setImmediate(() => leaving.abort(reason));
      return answer(signal);
    });
    const creating = corridor.payouts.create(order, { signal: leaving.signal });
    const error = await creating.catch((caught: unknown) => caught);
    expect(keys).toEqual([expect.any(String)]);
    expect(error).toMatchObject({
      ...{ name: 'CorridorConnectionError', idempotencyKey: keys[0], attempts: 1, cause: reason },
      message: expect.stringContaining(String(keys[0])),
    });
  });

  it('reports its idempotency key when aborted while it waits for the payout', async () => {
    const leaving = new AbortController();
    const { corridor, keys } = openClient(() => {
      setImmediate(() => leaving.abort(reason));
      return Response.json(sent, { status: 201 });
    });
    const waiting = corridor.payouts.createAndWait(order, { signal: leaving.signal });
    const error = await waiting.catch((caught: unknown) => caught);
    expect(keys).toEqual([expect.any(String)]);
    expect(error).toMatchObject({
      ...{ name: 'CorridorConnectionError', idempotencyKey: keys[0], cause: reason },
    });
  });
});

it('a read of the TypeScript client that is aborted rejects with the reason of its signal', async () => {
  const leaving = new AbortController();
  const { corridor } = openClient((signal) => {
    setImmediate(() => leaving.abort(reason));
    return unanswered(signal);
  });
  const reading = corridor.payouts.retrieve('po_1', undefined, { signal: leaving.signal });
  await expect(reading).rejects.toBe(reason);
});
