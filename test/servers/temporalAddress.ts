import { inject } from 'vitest';

/**
 * The Temporal of this test file, which no other file uses while this one runs: the queues have
 * the same names in all files, and a worker must not take what is for another one's database.
 */
export function temporalAddress(): string {
  const addresses = inject('temporalAddresses');
  // Vitest numbers the files that run at a time, from 1 on.
  const slot = Number.parseInt(process.env['VITEST_POOL_ID'] ?? '1', 10);
  const address = addresses[slot - 1];
  if (address === undefined)
    throw new Error(`There is no Temporal for the ${slot}th file at a time.`);
  return address;
}
