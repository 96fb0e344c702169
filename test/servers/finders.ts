import { homedir } from 'node:os';
import { join } from 'node:path';

/** Options for locating server binaries: the same places that `corridor start` searches. */
export function finderOptions(
  variable: 'TEMPORAL_CLI_PATH' | 'TEMPORAL_SERVER_PATH' | 'TEMPORAL_TEST_SERVER_PATH',
) {
  const { env } = process;
  return {
    explicitPath: env[variable] || undefined,
    cacheDir: join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'corridor'),
    path: env['PATH'] ?? '',
    onProgress: (line: string) => process.stderr.write(`${line}\n`),
  };
}
