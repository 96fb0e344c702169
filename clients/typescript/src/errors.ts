import type { Problem, ProblemCode, ProblemError } from './types.js';

/** What a failed request says of itself beside the message. */
export type RequestFacts = {
  /** The key of a write. Repeating the same call with it never executes the request twice. */
  readonly idempotencyKey: string | undefined;
  /** How often the request was sent. */
  readonly attempts: number;
};

/** A refusal by the API: problem details (RFC 9457), with the code to decide by. */
export class CorridorProblem extends Error {
  override readonly name = 'CorridorProblem';
  readonly code: ProblemCode;
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly param: string | undefined;
  readonly expected: string | undefined;
  readonly received: string | undefined;
  /** Every error of the request, the first one included. */
  readonly errors: readonly ProblemError[];
  /** Identifies the request in the logs of the service. */
  readonly requestId: string;
  /** The payout that records the refusal. */
  readonly payout: string | undefined;
  readonly batch: string | undefined;
  readonly idempotencyKey: string | undefined;
  readonly attempts: number;

  constructor(problem: Problem, facts: RequestFacts) {
    super(`${problem.code}: ${problem.detail}`);
    this.code = problem.code;
    this.status = problem.status;
    this.title = problem.title;
    this.detail = problem.detail;
    this.param = problem.param;
    this.expected = problem.expected;
    this.received = problem.received;
    this.errors = problem.errors;
    this.requestId = problem.request_id;
    this.payout = problem.payout;
    this.batch = problem.batch;
    this.idempotencyKey = facts.idempotencyKey;
    this.attempts = facts.attempts;
  }
}

/**
 * The API has not answered: the connection failed, an answer did not come in time, or something
 * between answered in its place. A write may have been executed; the same call with the
 * `idempotencyKey` of this error finds out, and executes it if it was not.
 */
export class CorridorConnectionError extends Error {
  override readonly name = 'CorridorConnectionError';
  /** What was answered, where that was no answer of the API. */
  readonly status: number | undefined;
  readonly idempotencyKey: string | undefined;
  readonly attempts: number;

  constructor(
    message: string,
    facts: RequestFacts & { readonly status?: number; readonly cause?: unknown },
  ) {
    const { idempotencyKey, attempts, status, cause } = facts;
    const advice =
      idempotencyKey === undefined
        ? ''
        : ` The request may have been executed: repeat it with the idempotency key ${idempotencyKey}.`;
    super(`${message} Attempts: ${attempts}.${advice}`, { cause });
    this.status = status;
    this.idempotencyKey = idempotencyKey;
    this.attempts = attempts;
  }
}

/**
 * A wait ended before its payout or batch was final: the time was over, or it cannot be read any
 * more. The object goes on, and can be waited for again by the id in `last`.
 */
export class CorridorWaitTimeoutError<
  Last extends { readonly id: string; readonly status: string },
> extends Error {
  override readonly name = 'CorridorWaitTimeoutError';
  /** The object as it was read last. */
  readonly last: Last;

  /** The `cause` is what ended the wait where that was not the time alone. */
  constructor(last: Last, waitedMs: number, cause?: unknown) {
    const reason = cause instanceof Error ? ` It could not be read: ${cause.message}` : '';
    super(`${last.id} was last known as ${last.status} after ${waitedMs} ms.${reason}`, { cause });
    this.last = last;
  }
}

/** Whether a decoded body is problem details, and not what a proxy between answers. */
export function isProblem(body: unknown): body is Problem {
  if (typeof body !== 'object' || body === null) return false;
  return 'code' in body && 'request_id' in body && 'status' in body && 'detail' in body;
}
