import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';

const pathOf = (file: string) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const options = {
  workflowsPath: pathOf('workflows/index.js'),
  logger: new DefaultLogger('WARN'),
};
const encrypted = { failureConverterPath: pathOf('temporal/failureConverter.js') };

/** Part of the build: one file with the workflows, so that no worker bundles at its start. */
const plain = await bundleWorkflowCode(options);
await writeFile(pathOf('workflows/bundle.js'), plain.code);
/** The same for workers with encryption keys: what converts a failure is part of the bundle. */
const other = await bundleWorkflowCode({ ...options, ...encrypted });
await writeFile(pathOf('workflows/encryptedBundle.js'), other.code);
