import { findTemporalCli } from '../../sandbox/stack/temporalBinary.js';
import { finderOptions } from './finders.js';

/**
 * Finds Temporal's CLI before any test needs it. A fresh machine builds it for minutes, longer than a
 * test may take, and test files that started at the same time would each build it.
 */
export async function setup(): Promise<void> {
  await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
}
