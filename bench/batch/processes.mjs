import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startProcess } from '../../dist/sandbox/stack/process.js';

/**
 * Starts a script of this folder, or of the product, as a process; it announces its URL.
 *
 * @param {{ name: string, script: string, directory: string, env?: Record<string, string> }} options
 */
export function startScript({ name, script, directory, env = {} }) {
  return startProcess({
    name,
    command: process.execPath,
    args: [fileURLToPath(new URL(script, import.meta.url))],
    env: { ...process.env, ...env },
    ipc: true,
    ready: { line: (line) => /"(?:ready|listening)":"([^"]+)"/.exec(line)?.[1] },
    // The bundle of the parent workflow takes some seconds on a busy machine.
    readyTimeoutMs: 60_000,
    onLog: (line) => appendFileSync(join(directory, 'logs', `${name}.log`), `${line}\n`),
  });
}

/** Lets the kernel count the peak of a process anew from now (proc(5), clear_refs). */
function resetPeak(pid) {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

/** A line of /proc/<pid>/status, in MB of 1,000,000 bytes. */
function memoryMb(pid, name) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kibibytes = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
  if (kibibytes === undefined) throw new Error(`Process ${pid} has no ${name}.`);
  return (Number(kibibytes) * 1024) / 1e6;
}

/** Linux counts in hundredths of a second for everybody (proc(5), USER_HZ). */
const tickMs = 10;

/** What a process has used of a processor, with its children that have ended. */
function processorMs(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The name before the last bracket may hold spaces; fields 14 to 17 are the four times.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * tickMs;
}

/** PostgreSQL has a process a connection: those that live count with their parent. */
function treeProcessorMs(pid) {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
  const living = children.filter((child) => child !== '' && existsSync(`/proc/${child}/stat`));
  return living.reduce((sum, child) => sum + processorMs(child), processorMs(pid));
}

/**
 * Watches memory and processor time of processes from now on. The memory of PostgreSQL is left
 * out: each of its processes counts what all of them share.
 *
 * @param {Record<string, number>} pids by name
 */
export function watchProcesses(pids) {
  // The supervisor of the stack is this process, which only waits.
  const names = Object.keys(pids).filter((name) => name !== 'supervisor');
  const single = names.filter((name) => name !== 'postgres');
  for (const name of single) resetPeak(pids[name]);
  const usedMs = () => names.map((name) => [name, treeProcessorMs(pids[name])]);
  const startMb = Object.fromEntries(single.map((name) => [name, memoryMb(pids[name], 'VmRSS')]));
  const startMs = Object.fromEntries(usedMs());
  return {
    peaksMb: () => Object.fromEntries(single.map((name) => [name, memoryMb(pids[name], 'VmHWM')])),
    growthMb: (name) => memoryMb(pids[name], 'VmHWM') - startMb[name],
    /** Processor time since the start, a payout. */
    msAPayout: (payouts) =>
      Object.fromEntries(usedMs().map(([name, ms]) => [name, (ms - startMs[name]) / payouts])),
  };
}
