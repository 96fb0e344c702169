// `run.ts` and all that it loads in a few files. The build writes them: see tools/bundleCli.mjs.
export { runCommand } from './run.js';
