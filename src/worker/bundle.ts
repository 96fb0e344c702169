import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';

const pathOf = (file: string) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const options = {
  workflowsPath: pathOf('workflows/index.js'),
  logger: new DefaultLogger('WARN'),
};
/** For workers with encryption keys: the failure converter is part of the bundle. */
const encrypted = { failureConverterPath: pathOf('temporal/failureConverter.js') };
/** For workers with tracing. */
const traced = { workflowInterceptorModules: [pathOf('workflows/traced.js')] };

/** Bundles of all workflows, written by the build so that no worker has to bundle when it starts. */
const bundles = {
  bundle: {},
  'encrypted-bundle': encrypted,
  'traced-bundle': traced,
  'traced-encrypted-bundle': { ...encrypted, ...traced },
};
for (const [name, more] of Object.entries(bundles)) {
  const { code } = await bundleWorkflowCode({ ...options, ...more });
  await writeFile(pathOf(`workflows/${name}.js`), code);
}
