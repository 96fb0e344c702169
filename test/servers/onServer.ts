import { connectDatabase, type Database } from '../../src/db/client.js';

/** Runs some work as the owner, on a separate connection. */
export async function onServer(
  url: string,
  work: (admin: Database) => Promise<unknown>,
): Promise<void> {
  const admin = connectDatabase({ url, poolSize: 1, applicationName: 'test-admin' });
  try {
    await work(admin);
  } finally {
    await admin.end({ timeout: 5 });
  }
}

/**
 * Turns fsync off, because waiting for the disk is most of a commit's time. Commits still survive
 * the death of any process; test clusters need not survive a power cut.
 */
export async function forgetOnPowerCut(admin: Database): Promise<void> {
  await admin`alter system set fsync = off`;
  // Otherwise filling a million rows would trigger a checkpoint every few seconds.
  await admin`alter system set max_wal_size = '8GB'`;
  await admin`select pg_reload_conf()`;
}
