import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startProcess } from '../../dist/sandbox/stack/process.js';

/**
 * Starts a script, given relative to this folder, as a process that announces its URL.
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
    // Bundling the parent workflow takes some seconds on a busy machine.
    readyTimeoutMs: 60_000,
    onLog: (line) => appendFileSync(join(directory, 'logs', `${name}.log`), `${line}\n`),
  });
}

/** Resets the kernel's peak memory counter of a process (proc(5), clear_refs). */
function resetPeak(pid) {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

/** Reads a line of /proc/<pid>/status, in MB of 1,000,000 bytes. */
function memoryMb(pid, name) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kibibytes = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
  if (kibibytes === undefined) throw new Error(`Process ${pid} has no ${name}.`);
  return (Number(kibibytes) * 1024) / 1e6;
}

/** Linux reports CPU times to user space in hundredths of a second (proc(5), USER_HZ). */
const tickMs = 10;

/** Returns the CPU time of a process, including its children that have exited. */
function processorMs(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The name before the last bracket may contain spaces. Fields 14 to 17 are the four times.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * tickMs;
}

/** Adds the live children, because PostgreSQL has a process per connection. */
function treeProcessorMs(pid) {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
  const living = children.filter((child) => child !== '' && existsSync(`/proc/${child}/stat`));
  return living.reduce((sum, child) => sum + processorMs(child), processorMs(pid));
}

/**
 * Measures memory and CPU time of processes from now on. PostgreSQL's memory is excluded, because each of
 * its processes counts the memory they all share.
 *
 * @param {Record<string, number>} pids by name
 */
export function watchProcesses(pids) {
  // The stack's supervisor is this process, which only waits.
  const names = Object.keys(pids).filter((name) => name !== 'supervisor');
  const single = names.filter((name) => name !== 'postgres');
  for (const name of single) resetPeak(pids[name]);
  const usedMs = () => names.map((name) => [name, treeProcessorMs(pids[name])]);
  const startMb = Object.fromEntries(single.map((name) => [name, memoryMb(pids[name], 'VmRSS')]));
  const startMs = Object.fromEntries(usedMs());
  return {
    peaksMb: () => Object.fromEntries(single.map((name) => [name, memoryMb(pids[name], 'VmHWM')])),
    growthMb: (name) => memoryMb(pids[name], 'VmHWM') - startMb[name],
    /** Returns the CPU time per payout since the start. */
    msAPayout: (payouts) =>
      Object.fromEntries(usedMs().map(([name, ms]) => [name, (ms - startMs[name]) / payouts])),
  };
}
