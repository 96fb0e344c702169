import type { Problem, ProblemCode, ProblemError } from './types.js';

/** Facts about a failed request, in addition to the message. */
export type RequestFacts = {
  /** The key of a write. Repeating the call with the same key never executes the request twice. */
  readonly idempotencyKey: string | undefined;
  /** How many times the request was sent. */
  readonly attempts: number;
};

/** A refusal by the API: problem details (RFC 9457), with a `code` for programs. */
export class CorridorProblem extends Error {
  override readonly name = 'CorridorProblem';
  readonly code: ProblemCode;
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly param: string | undefined;
  readonly expected: string | undefined;
  readonly received: string | undefined;
  /** All errors of the request, including the first one. */
  readonly errors: readonly ProblemError[];
  /** Identifies the request in the service's logs. */
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
 * It is unknown whether the request was executed: the connection failed, the response timed out, an intermediary
 * such as a proxy responded instead of the API, or a repeat after one of these was refused without saying what
 * became of the first attempt (`cause` is then the refusal). Repeat a write with this error's `idempotencyKey`: it
 * returns the result, or executes the write if that has not happened.
 */
export class CorridorConnectionError extends Error {
  override readonly name = 'CorridorConnectionError';
  /** The HTTP status of a response that did not come from the API. */
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
 * A wait ended before its payout or batch was final, because it timed out or the object can no longer be
 * read. The payout or batch continues. Use the ID in `last` to wait again.
 */
export class CorridorWaitTimeoutError<
  Last extends { readonly id: string; readonly status: string },
> extends Error {
  override readonly name = 'CorridorWaitTimeoutError';
  /** The object as last read. */
  readonly last: Last;

  /** `cause` is the error that ended the wait, if it was not only the timeout. */
  constructor(last: Last, waitedMs: number, cause?: unknown) {
    const reason = cause instanceof Error ? ` It could not be read: ${cause.message}` : '';
    super(`${last.id} was last known as ${last.status} after ${waitedMs} ms.${reason}`, { cause });
    this.last = last;
  }
}

/** Returns whether a decoded body is problem details, rather than a response of a proxy. */
export function isProblem(body: unknown): body is Problem {
  if (typeof body !== 'object' || body === null) return false;
  return 'code' in body && 'request_id' in body && 'status' in body && 'detail' in body;
}
