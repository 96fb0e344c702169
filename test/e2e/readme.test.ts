import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { blocksOf } from '../fixtures/fencedBlocks.js';

const root = fileURLToPath(new URL('../../', import.meta.url));

describe('the README', () => {
  let folder: string;
  let stack: Part;
  let readme: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'corridor-readme-'));
    readme = await readFile(join(root, 'README.md'), 'utf8');
    const ports = ['api', 'metrics', 'temporal', 'temporal-ui', 'postgres', 'bank'];
    stack = await startProcess({
      name: 'corridor',
      command: process.execPath,
      args: [
        join(root, 'dist/src/cli/main.js'),
        'start',
        ...ports.flatMap((port) => [`--${port}-port`, '0']),
      ],
      cwd: folder,
      env: process.env,
      ready: { line: (line) => /Ctrl-C stops every part/.exec(line)?.[0] },
      readyTimeoutMs: 120_000,
      stopTimeoutMs: 60_000,
      onLog: () => undefined,
    });
  });
  afterAll(async () => {
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('shows a journey that works when it is pasted', async () => {
    const [, ...blocks] = blocksOf(readme, 'sh');
    const corridor = `'${process.execPath}' '${join(root, 'dist/src/cli/main.js')}'`;
    const script = blocks.join('\n').replaceAll('npx corridor', corridor);
    const output = await runShell(script, folder);
    expect(output).toContain('"status":"settled"');
    expect(output).toContain('"received":"1066.54"');
    expect(output).toContain('"available":"998750.00"');
    expect(output).toContain('"secret":"whsec_');
    expect(output).toMatch(/ {2}payout\.settled {2}po_\w+ {2}settled {2}1066\.54 EUR {2}-> \w+\n/);
    expect(output).toContain('"status_reason":"AC04"');
  });

  it('links to the simulate orders of the sandbox bank', () => {
    expect(readme).toContain('(src/api/pages/testing.md)');
  });
});

async function runShell(script: string, cwd: string): Promise<string> {
  const shell = spawn('bash', ['-euo', 'pipefail'], { cwd, stdio: ['pipe', 'pipe', 'inherit'] });
  let output = '';
  shell.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString('utf8');
  });
  shell.stdin.end(script);
  const [code] = await once(shell, 'close');
  if (code !== 0) throw new Error(`The script ended with ${code}:\n${output}`);
  return output;
}
