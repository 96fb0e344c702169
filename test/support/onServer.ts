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
