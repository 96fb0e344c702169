// `npm run dev`: builds and starts the stack. Node reruns this at each change in src.
import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';

const cli = new URL('../dist/src/cli/main.js', import.meta.url);
const { status } = spawnSync('npm', ['run', '--silent', 'build'], { stdio: 'inherit' });
if (status === 0) {
  // In watch mode Node's threads report the files they load, in messages that Temporal's worker misreads.
  delete process.env.WATCH_REPORT_DEPENDENCIES;
  process.argv.splice(1, 1, cli.pathname, 'start');
  await import(pathToFileURL(cli.pathname).href);
}
// If the build fails, Node waits for the next change.
