import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { findPrometheus } from '../servers/prometheus.js';

const run = promisify(execFile);
const deployed = fileURLToPath(new URL('../../deploy/prometheus', import.meta.url));

const testsOfAlerts = z.looseObject({ tests: z.array(z.looseObject({ name: z.string() })) });

let promtool: string;

beforeAll(async () => {
  promtool = await findPrometheus('promtool');
});

/** Runs the unit tests of the alerts: a healthy hour, and one test per alert (test/unit/alerts.test.ts). */
const testRules = (cwd: string) => run(promtool, ['test', 'rules', 'alerts.test.yml'], { cwd });

describe('Prometheus', () => {
  it('accepts its configuration and the rules', async () => {
    await run(promtool, ['check', 'config', 'prometheus.yml'], { cwd: deployed });
  });

  it('fires each alert in its test, and none in a healthy hour', async () => {
    expect((await testRules(deployed)).stdout).toContain('SUCCESS');
  });

  it('fails the tests when a threshold is wrong', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'corridor-alerts-'));
    try {
      await cp(deployed, copy, { recursive: true });
      // Of the tests, only the alert's own: all of them take some seconds more.
      const testFile = join(copy, 'alerts.test.yml');
      const all = testsOfAlerts.parse(parse(await readFile(testFile, 'utf8')));
      const tests = all.tests.filter(({ name }) => name === 'CorridorProcessDown');
      await writeFile(testFile, stringify({ ...all, tests }));
      expect((await testRules(copy)).stdout).toContain('SUCCESS');
      const rules = await readFile(join(copy, 'alerts.yml'), 'utf8');
      await writeFile(join(copy, 'alerts.yml'), rules.replace('} == 0', '} == 1'));
      await expect(testRules(copy)).rejects.toMatchObject({
        stderr: expect.stringContaining('CorridorProcessDown'),
      });
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  });
});
