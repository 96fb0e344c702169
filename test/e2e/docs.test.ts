import { readFileSync } from 'node:fs';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { docsPages } from '../../src/api/referencePages.js';
import { apiVersions } from '../../src/contract/versions/index.js';
import { readDocument } from '../assertions/document.js';
import { textOf } from '../fixtures/client.js';
import { startBrowser, type Visit, visit } from '../servers/browser.js';
import { createStackHome, type RunningStack, type StackHome } from '../servers/stackHome.js';

let home: StackHome;
let stack: RunningStack;
let browser: Browser;
let apiUrl: string;

beforeAll(async () => {
  home = await createStackHome();
  stack = await home.start();
  browser = await startBrowser();
  apiUrl = stack.description.api_url;
});
afterAll(async () => {
  await browser?.close();
  await stack?.part.stop();
  await home.remove();
});

const paths = docsPages().flatMap(([path]) => (path === '/docs/' ? [] : [path]));
const screens = [
  { viewport: { width: 1280, height: 800 }, colorScheme: 'light' },
  { viewport: { width: 390, height: 800 }, colorScheme: 'dark' },
] as const;
const axe = readFileSync(new URL(import.meta.resolve('axe-core/axe.min.js')), 'utf8');
const axeResults = z.object({
  violations: z.array(
    z.object({
      id: z.string(),
      impact: z.string().nullable(),
      nodes: z.array(z.object({ html: z.string() })),
    }),
  ),
});

describe.concurrent.each(screens)('with $viewport.width pixels, $colorScheme', (screen) => {
  it.each(paths)('%s fits the viewport, is accessible and loads from one origin', async (path) => {
    const seen = await visit(browser, apiUrl + path, screen);
    await isShown(seen.page, path);
    const width = await seen.page.evaluate('document.documentElement.scrollWidth');
    expect(width).toBe(screen.viewport.width);
    expect(await seriousViolations(seen.page)).toEqual([]);
    expect(seen.complaints).toEqual([]);
    const elsewhere = seen.requested.filter((url) => !/^(data|blob):/.test(url));
    expect(elsewhere.filter((url) => !url.startsWith(`${apiUrl}/`))).toEqual([]);
    await seen.page.close();
  });
});

it('the pages are also found with a trailing slash', async () => {
  const [first, second] = await Promise.all(
    ['/docs', '/docs/'].map((path) => fetch(apiUrl + path)),
  );
  expect(await second?.text()).toBe(await first?.text());
});

/** Waits until the page is displayed: the reference is rendered in the browser, a guide is static. */
async function isShown(page: Page, path: string): Promise<void> {
  await page.locator('h1').first().waitFor();
  if (path !== '/docs/reference') return;
  // On a phone the sidebar exists, but is hidden.
  await sidebar(page).getByText('List payouts').first().waitFor({ state: 'attached' });
}

const sidebar = (page: Page) =>
  page.locator('aside, nav').filter({ hasText: 'Introduction' }).first();

async function seriousViolations(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe);
  const { violations } = axeResults.parse(
    await page.evaluate(`axe.run(document, { resultTypes: ['violations'] })`),
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' ')}`);
}

describe('/docs/reference', () => {
  const [newest] = apiVersions;
  const openReference = (version: string) =>
    visit(browser, `${apiUrl}/docs/reference?version=${version}`);
  // Rendering it takes seconds, so both tests of the newest version share a page.
  let shared: Visit;
  beforeAll(async () => {
    shared = await openReference(newest);
  });
  afterAll(() => shared?.page.close());

  it.each(apiVersions)('lists every operation of version %s', async (version) => {
    const { paths: documented } = await readDocument(apiUrl, version);
    const summaries = Object.values(documented).flatMap((methods) =>
      Object.values(methods).map(({ summary }) => String(summary)),
    );
    const { page } = version === newest ? shared : await openReference(version);
    await page.getByText(`v${version}`).first().waitFor();
    // Read at once: finding each link by its name takes the browser seconds in all.
    const links = await sidebar(page).getByRole('link').allInnerTexts();
    for (const summary of summaries) expect(links).toContainEqual(expect.stringContaining(summary));
    if (page !== shared.page) await page.close();
  });

  it('sends a list request without filters, and a quote, in the version of the page', async () => {
    const { page, complaints } = shared;
    await page.getByPlaceholder('Token').first().fill(stack.description.api_key);
    const list = await tryIt(page, 'List payouts', 'get /v1/payouts');
    expect(list).toMatchObject({ status: 200, body: { object: 'list' } });
    const quote = await tryIt(page, 'Create a quote', 'post /v1/quotes');
    expect(quote).toMatchObject({
      status: 201,
      version: newest,
      body: { source_amount: '1250.00' },
    });
    expect(complaints).toEqual([]);
  });
});

/** Opens an operation's form, sends it unchanged, and returns the API's answer. */
async function tryIt(page: Page, summary: string, operation: string) {
  await sidebar(page).getByRole('link', { name: summary }).first().click();
  await page.getByRole('button', { name: new RegExp(`Test Request.*${operation}\\)`) }).click();
  const answered = page.waitForResponse((one) => one.url().includes('/v1/'));
  await page.getByRole('button', { name: /^Send/ }).first().click();
  const answer = await answered;
  const body: unknown = await answer.json();
  await page.keyboard.press('Escape');
  return { status: answer.status(), version: answer.headers()['corridor-version'], body };
}

describe('a page', () => {
  it('is the target of the type URL of a problem, without JavaScript', async () => {
    const answer = await stack.client('POST /v1/quotes');
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    const response = await page.goto(apiUrl + textOf(answer, 'type'));
    expect(response?.headers()['content-security-policy']).toContain("style-src 'self';");
    expect(await page.locator('h2:target code').textContent()).toBe(answer.body['code']);
    await context.close();
  });

  it('shows the language that was chosen on another page', async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${apiUrl}/docs/quickstart`);
    await page.getByRole('button', { name: 'Python' }).first().click();
    await page.goto(`${apiUrl}/docs/payouts`);
    const shown = await page
      .locator('.tabbed figure:visible')
      .evaluateAll((figures) => figures.map((figure) => figure.getAttribute('data-language')));
    expect(new Set(shown.filter((language) => language !== 'output'))).toEqual(new Set(['py']));
    await context.close();
  });

  it('copies its code to the clipboard', async () => {
    const context = await browser.newContext({
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    const page = await context.newPage();
    await page.goto(`${apiUrl}/docs/quickstart`);
    const figure = page.locator('.snippet figure[data-language=sh]').first();
    await figure.getByRole('button', { name: 'Copy' }).click();
    await figure.getByRole('button', { name: 'Copied' }).waitFor();
    const copied = await page.evaluate('navigator.clipboard.readText()');
    expect(copied).toBe(await figure.locator('code').textContent());
    await context.close();
  });
});

it.each([
  ['/docs?version=2026-11-15', '/docs/reference?version=2026-11-15'],
  ['/docs/guide', '/docs'],
  ['/docs/', undefined],
])('keeps the address %s working', async (address, target) => {
  const answer = await fetch(apiUrl + address, { redirect: 'manual' });
  expect(answer.status).toBe(target === undefined ? 200 : 302);
  expect(answer.headers.get('location') ?? undefined).toBe(target);
});
