import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Database, exactlyOne } from '../../src/db/client.js';

const run = promisify(execFile);

/**
 * Copies a cluster while it is running. The copy has no WAL: it needs all WAL from its start onwards.
 */
export async function copyCluster(database: Database, cluster: string, copy: string) {
  const connection = await database.reserve();
  await connection`select pg_backup_start('a test', fast => true)`;
  await run('cp', ['-a', cluster, copy]).catch(refuseOther);
  const [stopped] = await connection<{ labelfile: string }[]>`
    select labelfile from pg_backup_stop()`;
  connection.release();
  await writeFile(join(copy, 'backup_label'), exactlyOne(stopped).labelfile);
  for (const file of ['postmaster.pid', 'pg_wal'])
    await rm(join(copy, file), { recursive: true, force: true });
}

/** Accepts only files that vanished during the copy. They need not be in it: recovery recreates them. */
function refuseOther(error: unknown): void {
  const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
  const isGone = (line: string) => line.endsWith('No such file or directory');
  if (stderr === '' || !stderr.split('\n').every(isGone)) throw error;
}

/** Root created some of the files, but the server runs as the user who owns the rest. */
export async function giveToOwner(cluster: string): Promise<void> {
  await run('chown', ['-R', '--reference', join(cluster, 'PG_VERSION'), cluster]);
}
