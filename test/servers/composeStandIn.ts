import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Tool } from './operatorShell.js';
import type { PartName, Processes } from './processes.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));

/** The services of docker-compose.yml that are parts here. The other services start and stop with them. */
const parts: readonly PartName[] = [
  ...(['postgres', 'temporal', 'sandbox-bank'] as const),
  ...(['api', 'worker', 'batch-worker'] as const),
];

/**
 * Does to the processes of a test what `docker compose` does to the containers of docker-compose.yml.
 * Like Compose, it recreates a service whose settings have changed.
 *
 * @param env the processes' environment besides their own settings; updated with the caller's RATE_…
 * variables
 * @param psql runs a statement and returns what psql prints
 */
export function composeOf(
  processes: Processes,
  env: Record<string, string>,
  psql: (statement: string) => Promise<string>,
): Tool {
  const isRunning = (name: PartName) => processes.pids()[name] !== undefined;
  const up = async (names: readonly PartName[], isNew: boolean) => {
    await Promise.all(
      names.filter((name) => isNew && isRunning(name)).map((name) => processes.stop(name)),
    );
    await Promise.all(names.map((name) => processes.start(name)));
  };
  return async ([, verb = '', ...rest], callerEnv) => {
    const names = parts.filter((name) => rest.includes(name));
    switch (verb) {
      case 'ps':
      case 'logs':
        return names.map((name) => `${name} ${isRunning(name) ? 'running' : 'exited'}\n`).join('');
      case 'stop':
        await Promise.all(names.filter(isRunning).map(processes.stop));
        return '';
      case 'up': {
        const rateSettings = Object.entries(callerEnv).filter(([name]) => name.startsWith('RATE_'));
        const isChanged = rateSettings.some(([name, value]) => env[name] !== value);
        if (rateSettings.length > 0) Object.assign(env, Object.fromEntries(rateSettings));
        await up(names, isChanged || rest.includes('--force-recreate'));
        return '';
      }
      case 'exec': {
        const [, program, ...args] = rest;
        if (program === 'psql') {
          const statement = args.find((arg) => arg.startsWith('--command='));
          return psql(statement?.slice('--command='.length) ?? '');
        }
        return (await run('df', ['-h', processes.directory])).stdout;
      }
      case 'run': {
        // The arguments after `--rm migrate` are the command that runs as the database's owner.
        const [, , program = '', ...args] = rest;
        const own = { ...process.env, DATABASE_URL: processes.ownerUrl };
        return (await run(program, args, { cwd: root, env: own })).stdout;
      }
      default:
        throw new Error(`The stand-in does not support docker compose ${verb}.`);
    }
  };
}
