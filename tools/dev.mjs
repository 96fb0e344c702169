// `npm run dev`: builds and starts the stack; Node runs this again at each change of src.
import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';

const cli = new URL('../dist/src/cli/main.js', import.meta.url);
const { status } = spawnSync('npm', ['run', '--silent', 'build'], { stdio: 'inherit' });
if (status === 0) {
  // Node's watch mode has threads report what they load, in messages that Temporal's worker misreads.
  delete process.env.WATCH_REPORT_DEPENDENCIES;
  process.argv.splice(1, 1, cli.pathname, 'start');
  await import(pathToFileURL(cli.pathname).href);
}
// Where the build failed, Node waits for the next change.
