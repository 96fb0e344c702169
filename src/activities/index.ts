import { batchActivities } from './batch.js';
import { chunkActivities } from './chunk.js';
import type { Deliverer } from './delivery.js';
import type { ActivityDeps } from './deps.js';
import { ledgerActivities } from './ledger.js';
import { maintenanceActivities } from './maintenance.js';
import { operatorActivities } from './operator.js';
import { probeActivities } from './probe.js';
import { railActivities } from './submission.js';

/** Creates every activity with its dependencies. Workflows import only the type of the result. */
export function createActivities(deps: ActivityDeps & { readonly deliverer: Deliverer }) {
  return {
    ...ledgerActivities(deps),
    ...railActivities(deps),
    ...batchActivities(deps),
    ...chunkActivities(deps),
    ...deps.deliverer.activities,
    ...probeActivities(deps),
    ...maintenanceActivities(deps),
    ...operatorActivities(deps),
  };
}

export type Activities = ReturnType<typeof createActivities>;
