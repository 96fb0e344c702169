import { findTemporalCli, findTemporalServer } from '../../sandbox/stack/temporalBinary.js';
import { finderOptions } from './finders.js';

/**
 * Finds Temporal's production server before any test needs it. Building it takes minutes and both
 * processors if the CLI has not been built before.
 */
export async function setup(): Promise<void> {
  await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
  await findTemporalServer(finderOptions('TEMPORAL_SERVER_PATH'));
}
