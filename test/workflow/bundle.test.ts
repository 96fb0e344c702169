import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

describe('the workflow bundle', () => {
  /** Bundles a copy of the workflows with one of them changed; returns the refused modules. */
  async function refusalsOf(change: (payout: string) => string): Promise<readonly string[]> {
    const copy = mkdtempSync(join(tmpdir(), 'corridor-bundle-'));
    const refused: string[] = [];
    try {
      cpSync(join(root, 'src'), join(copy, 'src'), { recursive: true });
      symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
      const payout = join(copy, 'src/workflows/payout.ts');
      writeFileSync(payout, change(readFileSync(payout, 'utf8')));
      await bundleWorkflowCode({
        workflowsPath: join(copy, 'src/workflows/index.ts'),
        logger: new DefaultLogger('ERROR', ({ message }) => refused.push(message)),
      }).catch((error: unknown) => refused.push(String(error)));
    } finally {
      rmSync(copy, { recursive: true });
    }
    return refused;
  }

  it('is made of the workflows', async () => {
    expect(await refusalsOf((payout) => payout)).toEqual([]);
  });

  it('fails when a workflow imports a module of Node', async () => {
    const refused = await refusalsOf((payout) => `import 'node:fs';\n${payout}`);
    expect(refused.join('\n')).toContain('node:fs');
  });
});
