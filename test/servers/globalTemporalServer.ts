import { findTemporalCli, findTemporalServer } from '../../sandbox/stack/temporalBinary.js';
import { finderOptions } from './finders.js';

/**
 * Finds Temporal's production server before a test wants it: a build takes minutes where the CLI was
 * not built before, and both processors.
 */
export async function setup(): Promise<void> {
  await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
  await findTemporalServer(finderOptions('TEMPORAL_SERVER_PATH'));
}
