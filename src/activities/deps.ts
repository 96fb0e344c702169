import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Database } from '../db/client.js';
import type { Keyring } from '../db/personalData.js';
import type { RateAges } from '../db/rates.js';
import type { FactRules } from '../domain/factEffect.js';
import type { Rails } from '../rails/registry.js';
import type { RateSource } from '../rates/rateSource.js';
import type { Sender } from '../webhooks/sender.js';
import type { PayoutSnapshot } from './snapshot.js';

/** The dependencies of the activities. Each activity declares which of them it needs. */
export type ActivityDeps = DelivererDeps & {
  readonly database: Database;
  readonly temporal: Client;
  readonly rails: Rails;
  /** Decrypts beneficiaries' account details. */
  readonly keyring: Keyring;
  readonly rateSource: RateSource;
  readonly sender: Sender;
  readonly log: Logger;
  readonly rateMaximumAgeMs: RateAges;
  readonly factRules: FactRules;
  /** Amount in euro cents above which a second person has to approve commands that move money. */
  readonly approvalAboveMinor: bigint;
};

export type RailDeps = DelivererDeps &
  Pick<ActivityDeps, 'database' | 'rails' | 'factRules' | 'keyring'>;
export type AcceptanceDeps = Pick<ActivityDeps, 'rails' | 'rateMaximumAgeMs'>;
export type WakingDeps = Pick<ActivityDeps, 'database' | 'temporal'>;

/** Whether a step has written events of a payout or a batch that have to be delivered. */
export type Announcement = Pick<PayoutSnapshot, 'id' | 'hasPendingDeliveries'>;

/** Makes the first attempts to deliver the events of a step, once the step is committed. */
export type DelivererDeps = {
  readonly deliverer: { readonly begin: (steps: readonly Announcement[]) => void };
};
