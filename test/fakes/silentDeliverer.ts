import type { DelivererDeps } from '../../src/activities/deps.js';

/** Delivers nothing: what a step has announced stays pending in its rows. */
export const silentDeliverer: DelivererDeps['deliverer'] = { begin: () => undefined };
