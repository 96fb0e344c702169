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
  /** For rehearsals: replaces the limits that the rail declares. */
  readonly limits?: Partial<Pick<RailLimits, 'keyRetentionMs' | 'settleWithinMs'>>;
};

/** Timeout of a request. If the bank has not answered by then, the outcome is unknown. */
const requestLimitMs = 5_000;
/** Maximum size of a response: enough for a statement of 100,000 transfers. Others are far smaller. */
const answerLimitBytes = 32 * 1024 * 1024;

const dayMs = 24 * 60 * 60_000;

/** Maximum number of calls per submission. Finding two unreadable transfers among 500 takes 35 calls. */
const maximumCalls = 40;
/** Time after the first call in which halves may be sent. It is well within the activity's timeout. */
const splitLimitMs = 20_000;

type SplitBudget = { calls: number; readonly begunMs: number };

/** The bank answered 400: it has read the request and accepted no part of it. */
class RequestRefused extends Error {}

/** Parses JSON. The error of `JSON.parse` is replaced because it quotes the text, possibly personal data. */
function parsed(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`The sandbox bank's answer to ${path} is not JSON.`);
  }
}

/** Makes the connector of the sandbox bank, which is called over HTTP like a real bank. */
export function createSandboxRail(settings: SandboxSettings): Rail & { close(): Promise<void> } {
  const pool = new Pool(settings.url, {
    // As many as the worker's slots for rail calls: a call that had to wait for a connection could time
    // out before it was sent, and would count as unknown.
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

  /** Submits transfers in one request. If the bank refuses the request, submits halves within the budget. */
  async function submit(
    transfers: readonly Transfer[],
    budget: SplitBudget = { calls: maximumCalls, begunMs: Date.now() },
  ): Promise<readonly SubmitAnswer[]> {
    const unknown = (detail: string) =>
      transfers.map(({ key }): SubmitAnswer => ({ key, kind: 'unknown', detail }));
    budget.calls -= 1;
    // Uses the wall clock: after a suspension of the process the bank may have forgotten the keys, so nothing
    // more may be sent.
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
      // One unreadable transfer must not block the others, so both halves are sent, under the same keys.
      if (error instanceof RequestRefused && transfers.length > 1) {
        const middle = Math.ceil(transfers.length / 2);
        const half = await submit(transfers.slice(0, middle), budget);
        return [...half, ...(await submit(transfers.slice(middle), budget))];
      }
      // The request may have arrived even if the response failed, so the outcome is unknown.
      return unknown(error instanceof Error ? error.message : String(error));
    }
  }

  return {
    name: sandboxName,
    limits: { bulkSize: 500, keyRetentionMs: dayMs, settleWithinMs: 5 * dayMs, ...settings.limits },
    submit,
    lookup: async (keys) => (await call('/transfers/lookup', lookupAnswer, { keys })).results,
    voidKey: async (key) => (await call('/transfers/void', voidAnswer, { key })).outcome,
    statement: (date) => call(`/statement?date=${date}`, statementAnswer(date)),
    close: () => pool.close(),
  };
}
