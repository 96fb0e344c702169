import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createStackHome, type StackHome } from '../servers/stackHome.js';

describe('corridor demo', () => {
  let home: StackHome;
  beforeAll(async () => {
    home = await createStackHome();
  });
  afterAll(() => home?.remove());

  it('shows the main job from the quote to the verified webhook, and leaves nothing running', async () => {
    const { code, stdout, stderr } = await home.run('demo');
    expect(`${code} ${stderr}`).toBe('0 ');

    expect(stdout).toMatch(/^Quote +qt_\w+: 1250\.00 USD gives 1066\.54 EUR$/m);
    const [, payoutId] = /^Payout +(po_\w+): (?:processing|sent|settled) after/m.exec(stdout) ?? [];
    expect(payoutId).toBeDefined();
    const states = [...stdout.matchAll(/^ +(\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z) +(\w+)$/gm)];
    expect(states.map(([, , status]) => status)).toEqual([
      'pending',
      'processing',
      'sent',
      'settled',
    ]);
    const times = states.map(([, at = '']) => at);
    expect(times).toEqual(times.toSorted((one, other) => one.localeCompare(other)));
    expect(stdout).toMatch(
      /^Webhook +evt_\w+: payout\.settled after [\d.]+ s, signature verified$/m,
    );
    expect(stdout).toContain('USD 1000000.00 before, 998750.00 after, 0.00 held');
    const sums = [
      ...stdout.matchAll(/^Ledger +(\w{3}): the sum of its \d+ postings is (-?\d+)$/gm),
    ];
    expect(sums.map(([, currency, sum]) => `${currency} ${sum}`)).toEqual([
      'EUR 0',
      'GBP 0',
      'USD 0',
    ]);

    expect(await home.transfers()).toEqual([payoutId]);
    expect(home.hasDescription()).toBe(false);
    expect(home.processes()).toEqual([]);
  });

  it('can run again on the same data', async () => {
    const { code, stdout } = await home.run('demo');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Webhook .* signature verified$/m);
  });

  it('leaves nothing running when it is interrupted', async () => {
    const demo = await home.begin('demo', /^Quote/);
    const startedMs = performance.now();
    process.kill(demo.pid, 'SIGINT');
    const { code, lastWords } = await demo.exited;
    // Every part stops without reaching its own time limit; the shortest of those is 10 s.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    expect(code).toBe(130);
    expect(lastWords.join('\n')).toContain('Interrupted');
    expect(home.processes()).toEqual([]);
  });
});
