import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import type { RailEvent, RailReport, Statement } from '../domain/railReport.js';

/** One order to a rail. The key is derived from the payout, so a repeat is the same order. */
export type Transfer = {
  readonly key: string;
  readonly amountMinor: bigint;
  readonly currency: string;
  readonly beneficiary: BeneficiaryDetails;
  /** The remittance text that the beneficiary sees. */
  readonly remittance: string;
};

/**
 * What a rail answers to one transfer. `unknown` is no answer: only the same key may follow.
 * `voided` reports nothing: the step that had the key voided records how the payout ends.
 */
export type SubmitAnswer = { readonly key: string } & (
  | Extract<RailReport, { readonly kind: 'accepted' | 'rejected' }>
  | { readonly kind: 'voided' }
  | { readonly kind: 'unknown'; readonly detail: string }
);

/** What a rail knows of a key. `not_found` is no rejection: the order may still be on its way. */
export type LookupAnswer = { readonly key: string } & (
  | RailReport
  | { readonly kind: 'voided' }
  | { readonly kind: 'not_found' }
);

export type CallbackRequest = {
  readonly body: Buffer;
  /** The value of a header by its lower-case name. */
  readonly header: (name: string) => string;
  readonly receivedAt: Date;
};

/** What the rail has signed and this side cannot read, with why, in words without its values. */
export type UnreadableCallback = { readonly unreadable: string };

export type RailLimits = {
  /** The most transfers in one request. */
  readonly bulkSize: number;
  /** For how long the rail recognises a key; after that a repeat could pay twice. */
  readonly keyRetentionMs: number;
  /** By when it settles or says why not; later a person has to ask. */
  readonly settleWithinMs: number;
};

/** The port to a clearing scheme. Methods throw when the rail cannot be reached. */
export type Rail = {
  readonly name: string;
  readonly limits: RailLimits;
  readonly submit: (transfers: readonly Transfer[]) => Promise<readonly SubmitAnswer[]>;
  readonly lookup: (keys: readonly string[]) => Promise<readonly LookupAnswer[]>;
  /** The rail refuses the key for ever, or says that it is too late. */
  readonly voidKey: (key: string) => Promise<'voided' | 'too_late'>;
  /** The statement of a UTC day, YYYY-MM-DD. */
  readonly statement: (date: string) => Promise<Statement>;
};

/** The other direction: what a rail sends by itself. It knows the secret of callbacks, and no other. */
export type CallbackReader = {
  /** The rail's. */
  readonly name: string;
  /** Whether its head has a signature of the right form and age: otherwise no body is read. */
  readonly looksSigned: (head: Omit<CallbackRequest, 'body'>) => boolean;
  /** The events of an authentic callback; undefined when its signature is not the rail's. */
  readonly parseCallback: (
    request: CallbackRequest,
  ) => readonly RailEvent[] | UnreadableCallback | undefined;
};
