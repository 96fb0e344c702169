import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { apiVersions } from '../../src/contract/versions/index.js';
import { meaningOf, refusalCodes } from '../../src/domain/refusal.js';
import { createWebhookSecret, signWebhook } from '../../src/webhooks/signature.js';
import { readDocument } from '../assertions/document.js';
import { textOf } from '../fixtures/client.js';
import { startSystem, type TestSystem } from '../servers/system.js';
import { startBrowser, visit } from './browser.js';

let system: TestSystem;
let browser: Browser;

beforeAll(async () => {
  system = await startSystem({ startsWorker: false });
  browser = await startBrowser();
});
afterAll(async () => {
  await browser.close();
  await system.stop();
});

const elsewhere = (requested: readonly string[]) =>
  requested.filter((url) => !url.startsWith(system.apiUrl) && !url.startsWith('data:'));

describe('/docs in a browser', () => {
  it.each(apiVersions)('shows every operation of version %s, from our own origin', async (name) => {
    const { paths } = await readDocument(system.apiUrl, name);
    const documented = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const seen = await visit(browser, `${system.apiUrl}/docs?version=${name}`);
    const { page } = seen;
    await page.waitForSelector('.opblock');
    expect(await page.locator('.version').first().textContent()).toContain(name);
    const shown = await page
      .locator('.opblock')
      .evaluateAll((blocks) =>
        blocks.map((block) =>
          ['method', 'path']
            .map((part) => block.querySelector(`.opblock-summary-${part}`)?.textContent?.trim())
            .join(' '),
        ),
      );
    // Browsers may break a long path: the reference puts a zero-width space after each slash.
    const spelled = shown.map((text) => text.replaceAll('\u200b', ''));
    expect(spelled).toEqual(expect.arrayContaining(documented));
    await page.locator('.opblock-summary', { hasText: '/v1/quotes' }).first().click();
    await page.waitForSelector('.opblock-body .responses-table');
    expect(seen.complaints).toEqual([]);
    expect(elsewhere(seen.requested)).toEqual([]);
    await page.close();
  });
});

it('sends a list from the reference as it stands', async () => {
  const { page } = await visit(browser, `${system.apiUrl}/docs`);
  await page.locator('button.authorize').first().click();
  await page.locator('.auth-container input').fill(system.account.apiKey);
  await page.locator('.auth-btn-wrapper button.authorize').click();
  await page.locator('.auth-btn-wrapper button.btn-done').click();
  const operation = page.locator('[id="operations-payouts-listPayouts"]');
  await operation.locator('.opblock-summary').click();
  await operation.locator('.try-out__btn').click();
  const answered = page.waitForResponse((one) => one.url().includes('/v1/payouts'));
  await operation.locator('button.execute').click();
  const answer = await answered;
  expect({ url: answer.url(), status: answer.status() }).toMatchObject({ status: 200 });
  await page.close();
});

describe('/docs/errors', () => {
  it('explains every code there is where the type of its problem leads, without a script', async () => {
    const answer = await system.client('POST /v1/quotes');
    const type = textOf(answer, 'type');
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    const response = await page.goto(system.apiUrl + type);
    expect(response?.status()).toBe(200);
    expect(response?.headers()['content-security-policy']).toContain("default-src 'none'");
    expect(await page.locator('section:target h2').textContent()).toBe(answer.body['code']);
    for (const code of refusalCodes) {
      const text = await page.locator(`section[id="${code}"]`).textContent();
      const { status, title } = meaningOf(code);
      expect(text).toContain(`${status} ${title}`);
      expect(text).toMatch(/What to do: \w.+\./);
    }
    await context.close();
  });

  it.each(['/docs/errors', '/docs/guide'])('%s asks nobody else for anything', async (path) => {
    const seen = await visit(browser, system.apiUrl + path);
    expect(await seen.page.locator('h2').count()).toBeGreaterThan(3);
    expect(seen.complaints).toEqual([]);
    expect(elsewhere(seen.requested)).toEqual([]);
    const links = await seen.page.locator('a').evaluateAll((all) => all.map((link) => link.href));
    for (const link of links) expect((await fetch(link)).status).toBe(200);
    await seen.page.close();
  });
});

describe('the verification in /docs/guide', () => {
  it('takes what we sign, and nothing else', async () => {
    const { page } = await visit(browser, `${system.apiUrl}/docs/guide`);
    const code = (await page.locator('#webhooks pre').textContent()) ?? '';
    await page.close();
    const loaded: unknown = await import(`data:text/javascript,${encodeURIComponent(code)}`);
    const { isGenuine } = z
      .object({
        isGenuine: z.function({
          input: [z.record(z.string(), z.string()), z.string(), z.string()],
          output: z.boolean(),
        }),
      })
      .parse(loaded);
    const secret = createWebhookSecret();
    const body = '{"id":"evt_1"}';
    const nowSeconds = Math.floor(Date.now() / 1000);
    const signed = (timestampSeconds: number, secrets = [createWebhookSecret(), secret]) => ({
      'webhook-id': 'evt_1',
      'webhook-timestamp': String(timestampSeconds),
      'webhook-signature': signWebhook({ id: 'evt_1', timestampSeconds, body, secrets }),
    });
    expect(isGenuine(signed(nowSeconds), body, secret)).toBe(true);
    expect(isGenuine(signed(nowSeconds), `${body} `, secret)).toBe(false);
    expect(isGenuine(signed(nowSeconds - 600), body, secret)).toBe(false);
    expect(isGenuine(signed(nowSeconds, [createWebhookSecret()]), body, secret)).toBe(false);
  });
});
