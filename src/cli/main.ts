#!/usr/bin/env node
import { enableCompileCache } from 'node:module';

// What a command loads is compiled once and not at each command, so it is loaded after this. In our own
// folder: in one that others can write to, they could put code. Where it cannot be written, as in the
// image, nothing is kept.
enableCompileCache(`${import.meta.dirname}/../../../node_modules/.cache/corridor`);
const { runCommand } = await import('./run.js');
process.exitCode = await runCommand(process.argv.slice(2));
