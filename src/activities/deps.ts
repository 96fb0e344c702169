import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Database } from '../db/client.js';
import type { Keyring } from '../db/personalData.js';
import type { RateAges } from '../db/rates.js';
import type { FactRules } from '../domain/payout.js';
import type { Rails } from '../rails/registry.js';
import type { RateSource } from '../rates/rateSource.js';
import type { Sender } from '../webhooks/sender.js';
import type { PayoutSnapshot } from './snapshot.js';

/** What the activities work on. Each states what it needs of this. */
export type ActivityDeps = DelivererDeps & {
  readonly database: Database;
  readonly temporal: Client;
  readonly rails: Rails;
  /** Opens the details that payouts are sent to. */
  readonly keyring: Keyring;
  readonly rateSource: RateSource;
  readonly sender: Sender;
  readonly log: Logger;
  readonly rateMaximumAgeMs: RateAges;
  readonly factRules: FactRules;
  /** Above this sum, in euro cents, a second person has to approve what moves money. */
  readonly approvalAboveMinor: bigint;
};

export type RailDeps = DelivererDeps &
  Pick<ActivityDeps, 'database' | 'rails' | 'factRules' | 'keyring'>;
export type AcceptanceDeps = Pick<ActivityDeps, 'rails' | 'rateMaximumAgeMs'>;
export type WakingDeps = Pick<ActivityDeps, 'database' | 'temporal'>;

/** Whether a step has left events of a payout or a batch to deliver. */
export type Announcement = Pick<PayoutSnapshot, 'id' | 'hasPendingDeliveries'>;

/** What makes the first attempts at the events of a step, once that is committed. */
export type DelivererDeps = {
  readonly deliverer: { readonly begin: (steps: readonly Announcement[]) => void };
};
