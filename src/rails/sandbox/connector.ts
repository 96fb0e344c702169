import { Pool } from 'undici';
import type { z } from 'zod';
import { traceHeaders } from '../../spans.js';
import type { Rail, RailLimits, SubmitAnswer, Transfer } from '../rail.js';
import {
  bulkAnswer,
  lookupAnswer,
  sandboxName,
  statementAnswer,
  submitAnswer,
  transferBody,
  voidAnswer,
} from './wire.js';

export type SandboxSettings = {
  readonly url: string;
  readonly apiToken: string;
  /** For rehearsals: what it declares in place of its own limits. */
  readonly limits?: Partial<Pick<RailLimits, 'keyRetentionMs' | 'settleWithinMs'>>;
};

/** A bank that has not answered in five seconds has an answer we do not know. */
const requestLimitMs = 5_000;
/** A statement of 100,000 transfers; every other answer is far smaller. */
const answerLimitBytes = 32 * 1024 * 1024;

const dayMs = 24 * 60 * 60_000;

/** Two transfers that cannot be read are found among 500 with 35 calls. */
const maximumCalls = 40;
/** No half is sent later than this after the first call, well within the limit of the step. */
const splitLimitMs = 20_000;

type SplitBudget = { calls: number; readonly begunMs: number };

/** The bank answered 400: it has read the request, and taken nothing of it. */
class RequestRefused extends Error {}

/** The sandbox bank, over HTTP like any other bank. */
/** What `JSON.parse` throws repeats a part of the text, which may be about a person. */
function parsed(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`The sandbox bank's answer to ${path} is not JSON.`);
  }
}

export function createSandboxRail(settings: SandboxSettings): Rail & { close(): Promise<void> } {
  const pool = new Pool(settings.url, {
    // As many as the worker has slots for rails: a call that waited for a connection would time
    // out without having been sent, and count as unknown.
    connections: 100,
    headersTimeout: requestLimitMs,
    bodyTimeout: requestLimitMs,
    connectTimeout: requestLimitMs,
    maxResponseSize: answerLimitBytes,
  });

  const headers = {
    authorization: `Bearer ${settings.apiToken}`,
    'content-type': 'application/json',
  };

  async function call<T>(path: string, answer: z.ZodType<T>, body?: object): Promise<T> {
    const response = await pool.request({
      method: body === undefined ? 'GET' : 'POST',
      path,
      headers: { ...headers, ...traceHeaders() },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(requestLimitMs),
    });
    const text = await response.body.text();
    if (response.statusCode === 400) throw new RequestRefused(`The sandbox bank refused ${path}.`);
    if (response.statusCode !== 200) {
      throw new Error(`The sandbox bank answered ${response.statusCode} to ${path}.`);
    }
    return answer.parse(parsed(path, text));
  }

  /** Submits in one request, or in halves of it while there is time for another call. */
  async function submit(
    transfers: readonly Transfer[],
    budget: SplitBudget = { calls: maximumCalls, begunMs: Date.now() },
  ): Promise<readonly SubmitAnswer[]> {
    const unknown = (detail: string) =>
      transfers.map(({ key }): SubmitAnswer => ({ key, kind: 'unknown', detail }));
    budget.calls -= 1;
    // By the wall clock: after a suspension the keys may be forgotten, and nothing more is sent.
    if (budget.calls < 0 || Math.abs(Date.now() - budget.begunMs) > splitLimitMs) {
      return unknown('It was not sent: a request beside it was refused.');
    }
    try {
      const [first] = transfers;
      if (transfers.length === 1 && first !== undefined) {
        return [await call('/transfers', submitAnswer, transferBody(first))];
      }
      const body = { transfers: transfers.map(transferBody) };
      return (await call('/transfers/bulk', bulkAnswer, body)).results;
    } catch (error) {
      // One transfer that it cannot read must not hold up the others: halves, under the same keys.
      if (error instanceof RequestRefused && transfers.length > 1) {
        const middle = Math.ceil(transfers.length / 2);
        const half = await submit(transfers.slice(0, middle), budget);
        return [...half, ...(await submit(transfers.slice(middle), budget))];
      }
      // The request may have arrived whatever went wrong on the way back: nobody knows.
      return unknown(error instanceof Error ? error.message : String(error));
    }
  }

  return {
    name: sandboxName,
    limits: { bulkSize: 500, keyRetentionMs: dayMs, settleWithinMs: 5 * dayMs, ...settings.limits },
    submit,
    lookup: async (keys) => (await call('/transfers/lookup', lookupAnswer, { keys })).results,
    voidKey: async (key) => (await call('/transfers/void', voidAnswer, { key })).outcome,
    statement: (date) => call(`/statement?date=${date}`, statementAnswer),
    close: () => pool.close(),
  };
}
