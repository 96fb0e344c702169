import { connectDatabase, type Database } from '../../src/db/client.js';

/** Something done as the owner on a connection of its own. */
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
 * Lets the kernel write when it likes, which is most of a commit's time. What is committed
 * survives the death of any process as before; a cluster of the tests outlives no power cut.
 */
export async function forgetOnPowerCut(admin: Database): Promise<void> {
  await admin`alter system set fsync = off`;
  // A fill of a million rows would have it write a checkpoint every few seconds.
  await admin`alter system set max_wal_size = '8GB'`;
  await admin`select pg_reload_conf()`;
}
