#!/usr/bin/env node
import { enableCompileCache } from 'node:module';

// Caches compiled modules between commands, so everything else is imported after this call. The cache is in
// our own folder, because in one that others can write to, they could plant code. If the folder is
// read-only, as in the container image, nothing is cached.
enableCompileCache(`${import.meta.dirname}/../../../node_modules/.cache/corridor`);
// Bundled commands load faster; those of the local stack are not bundled.
const isLocal = process.argv.some((arg) => ['start', 'demo', 'listen', 'rehearse'].includes(arg));
const { runCommand } = await (isLocal ? import('./run.js') : import('./bundle.js'));
const exitCode = await runCommand(process.argv.slice(2));
// A server that accepts connections but does not answer would keep the process alive for minutes.
if (isLocal) process.exitCode = exitCode;
else process.stdout.write('', () => process.exit(exitCode));
