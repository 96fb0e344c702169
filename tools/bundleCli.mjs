// Bundles the commands of `corridor` into a few files of a build, because Node needs most of a short command's
// time to find and load a thousand. Commands of the local stack are left out: the sandbox finds its programs by
// the place of its own files.
import { readdir, rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const dir = fileURLToPath(new URL('../dist/src/cli/', import.meta.url));
const bundle = await rolldown({
  input: { bundle: `${dir}run.js` },
  platform: 'node',
  // As the commands import it: a checkout may itself be below a folder of that name.
  external: /^\.\.\/\.\.\/sandbox\//,
  onLog: (_level, log) => {
    throw new Error(log.message);
  },
});
for (const file of await readdir(dir)) {
  if (file.startsWith('bundle')) await rm(`${dir}${file}`);
}
// Beside the commands' own files, so paths relative to a file stay right.
await bundle.write({ dir, chunkFileNames: 'bundle-[name]-[hash].js' });
await bundle.close();
