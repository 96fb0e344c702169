import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Release } from '../servers/processes.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const temporal = '_temporalio_workflow__WEBPACK_IMPORTED_MODULE_0__';

/** The patch ID of the change, as a release would define it. */
export const change = 'pause-before-submit';

/**
 * Makes a release in which payouts and batch chunks pause before they are submitted to the bank: a copy
 * of the build with the change in its workflow bundle, either behind `patched()` or, wrongly, without it.
 */
export async function makeChangedRelease(
  directory: string,
  buildId: string,
  { isPatched }: { readonly isPatched: boolean },
): Promise<Release> {
  const place = join(directory, buildId);
  await mkdir(place);
  await cp(join(root, 'dist/src'), join(place, 'dist/src'), { recursive: true });
  await cp(join(root, 'package.json'), join(place, 'package.json'));
  await symlink(join(root, 'node_modules'), join(place, 'node_modules'));
  const bundle = join(place, 'dist/src/workflows/bundle.js');
  const pause = `await ${temporal}.sleep(100);`;
  const changed = isPatched ? `if (${temporal}.patched('${change}')) ${pause}` : pause;
  let places = 0;
  const text = (await readFile(bundle, 'utf8')).replace(
    /^\s+await submit\((?:run|chunk)\);$/gm,
    (submit) => {
      places += 1;
      return `{ ${changed} ${submit} }`;
    },
  );
  // One step of a payout and two of a chunk.
  if (places !== 3) throw new Error(`Expected 3 calls to submit in the bundle, found ${places}.`);
  await writeFile(bundle, text);
  return { dist: join(place, 'dist'), env: { TEMPORAL_WORKER_BUILD_ID: buildId } };
}
