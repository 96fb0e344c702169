import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import type { Sum } from '../domain/money.js';
import type { RailEvent, RailReport, Statement } from '../domain/railReport.js';

/** One order to a rail. The key is derived from the payout, so that repeats are idempotent. */
export type Transfer = Sum & {
  readonly key: string;
  readonly beneficiary: BeneficiaryDetails;
  /** The remittance text that the beneficiary sees. */
  readonly remittance: string;
};

/**
 * A rail's answer to the submission of one transfer. After `unknown` only a repeat under the same key is
 * allowed. `voided` says nothing about the outcome: the step that voided the key records it.
 */
export type SubmitAnswer = { readonly key: string } & (
  | Extract<RailReport, { readonly kind: 'accepted' | 'rejected' }>
  | { readonly kind: 'voided' }
  | { readonly kind: 'unknown'; readonly detail: string }
);

/** A rail's answer to the look-up of a key. `not_found` is no rejection: the order may still arrive. */
export type LookupAnswer = { readonly key: string } & (
  | RailReport
  | { readonly kind: 'voided' }
  | { readonly kind: 'not_found' }
);

export type CallbackRequest = {
  readonly body: Buffer;
  /** Returns the value of a header by its lower-case name. */
  readonly header: (name: string) => string;
  readonly receivedAt: Date;
};

/** An authentic callback that cannot be parsed. `unreadable` names the faulty parts without their values. */
export type UnreadableCallback = { readonly unreadable: string };

export type RailLimits = {
  /** Maximum number of transfers in one request. */
  readonly bulkSize: number;
  /** How long the rail remembers a key. After that, a repeat could pay twice. */
  readonly keyRetentionMs: number;
  /** Maximum time in which the rail settles or reports a failure. After that, an operator has to act. */
  readonly settleWithinMs: number;
};

/** The port to a clearing scheme. Methods throw if the rail is unreachable; `submit` may answer `unknown`. */
export type Rail = {
  readonly name: string;
  readonly limits: RailLimits;
  readonly submit: (transfers: readonly Transfer[]) => Promise<readonly SubmitAnswer[]>;
  readonly lookup: (keys: readonly string[]) => Promise<readonly LookupAnswer[]>;
  /** Makes the rail refuse the key permanently. `too_late` means that the rail can no longer do so. */
  readonly voidKey: (key: string) => Promise<'voided' | 'too_late'>;
  /** Returns the statement of a UTC day, YYYY-MM-DD. */
  readonly statement: (date: string) => Promise<Statement>;
};

/** The inbound direction: reads callbacks of a rail. It has the callback secrets and no other credentials. */
export type CallbackReader = {
  /** The name of the rail. */
  readonly name: string;
  /** Whether the headers contain a signature of valid form and age. If not, the body is not read. */
  readonly looksSigned: (head: Omit<CallbackRequest, 'body'>) => boolean;
  /** Returns the events of an authentic callback, or undefined if the signature is not the rail's. */
  readonly parseCallback: (
    request: CallbackRequest,
  ) => readonly RailEvent[] | UnreadableCallback | undefined;
};
