import { inject } from 'vitest';

/**
 * The address of this file's Temporal server, which no other file uses at the same time: task queues
 * have the same names in all files, and a worker must not take tasks for another file's database.
 */
export function temporalAddress(): string {
  const addresses = inject('temporalAddresses');
  // Vitest numbers its concurrent slots from 1.
  const slot = Number.parseInt(process.env['VITEST_POOL_ID'] ?? '1', 10);
  const address = addresses[slot - 1];
  if (address === undefined)
    throw new Error(`There is no Temporal server for concurrent test file ${slot}.`);
  return address;
}
