import type { DelivererDeps } from '../../src/activities/deps.js';

/** A deliverer that does nothing: announced events stay pending in their rows. */
export const silentDeliverer: DelivererDeps['deliverer'] = { begin: () => undefined };
