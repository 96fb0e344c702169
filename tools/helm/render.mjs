// Lints deploy/helm/corridor and renders it into test/deploy/rendered.
// test/unit/helm-chart.test.ts checks the result against Kubernetes' schemas:
//
//   node tools/helm/render.mjs
//
// Uses the Helm in HELM_PATH, or builds it once with Go from the module in this folder.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const chart = join(root, 'deploy/helm/corridor');
const rendered = join(root, 'test/deploy/rendered');
// The newest version whose schemas are in test/deploy/kubernetes-schemas.json.
const kubernetes = ['--kube-version', '1.37.0'];

function findHelm() {
  if (process.env.HELM_PATH) return process.env.HELM_PATH;
  const module = fileURLToPath(new URL('.', import.meta.url));
  const [, version] = /helm\.sh\/helm\/v3 (v[\d.]+)/.exec(readFileSync(join(module, 'go.mod'), 'utf8'));
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'corridor');
  const helm = join(cache, `helm-${version}`);
  if (existsSync(helm)) return helm;
  process.stderr.write(`building Helm ${version} with Go\n`);
  mkdirSync(cache, { recursive: true });
  const args = ['build', '-trimpath', '-ldflags=-s -w', '-o', `${helm}.${process.pid}`];
  execFileSync('go', [...args, 'helm.sh/helm/v3/cmd/helm'], {
    cwd: module,
    env: { ...process.env, CGO_ENABLED: '0' },
    stdio: 'inherit',
  });
  renameSync(`${helm}.${process.pid}`, helm);
  return helm;
}

/** Hashes all files of the chart, so that a test can check that the rendered files are up to date. */
function digestOfChart() {
  const hash = createHash('sha256');
  const names = readdirSync(chart, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  for (const name of names) hash.update(name.slice(chart.length)).update(readFileSync(name));
  return hash.digest('hex');
}

const helm = findHelm();
const run = (...args) => execFileSync(helm, args, { encoding: 'utf8' });
for (const name of ['least', 'everything']) {
  const values = ['-f', join(root, `test/deploy/values-${name}.yaml`)];
  process.stdout.write(run('lint', '--strict', chart, ...kubernetes, ...values));
  const text = run('template', 'corridor', chart, ...kubernetes, ...values);
  writeFileSync(join(rendered, `${name}.yaml`), `# chart ${digestOfChart()}\n${text}`);
}
