import { type BatchDeps, batchActivities } from './batch.js';
import { type ChunkDeps, chunkActivities } from './chunk.js';
import { type DeliveryDeps, deliveryActivities } from './delivery.js';
import { type LedgerDeps, ledgerActivities } from './ledger.js';
import { type MaintenanceDeps, maintenanceActivities } from './maintenance.js';
import { type OperatorDeps, operatorActivities } from './operator.js';
import { railActivities } from './rail.js';
import type { RailDeps } from './submission.js';

export type ActivityDeps = LedgerDeps &
  RailDeps &
  BatchDeps &
  ChunkDeps &
  DeliveryDeps &
  MaintenanceDeps &
  OperatorDeps;

/** Every activity, with what it works on. The workflows see only the type of the result. */
export function createActivities(deps: ActivityDeps) {
  return {
    ...ledgerActivities(deps),
    ...railActivities(deps),
    ...batchActivities(deps),
    ...chunkActivities(deps),
    ...deliveryActivities(deps),
    ...maintenanceActivities(deps),
    ...operatorActivities(deps),
  };
}

export type Activities = ReturnType<typeof createActivities>;
