import chromium from '@sparticuz/chromium';
import {
  type Browser,
  type BrowserContextOptions,
  chromium as launcher,
  type Page,
} from 'playwright-core';

export type Visit = {
  readonly page: Page;
  /** Problems that the page reported: errors, warnings, refused loads, policy violations. */
  readonly complaints: readonly string[];
  /** Every URL that the page requested. */
  readonly requested: readonly string[];
};

/** Starts a real Chromium, which comes from a package so that the machine needs none installed. */
export async function startBrowser(): Promise<Browser> {
  return launcher.launch({
    executablePath: await chromium.executablePath(),
    // The package's default flags disable things under test here, such as web security.
    args: ['--headless=shell', '--no-sandbox', '--no-zygote', '--disable-gpu'],
    timeout: 30_000,
  });
}

/** Opens a page and records its errors and its requests. */
export async function visit(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Visit> {
  const page = await browser.newPage(options);
  const complaints: string[] = [];
  const requested: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => requested.push(request.url()));
  page.on('requestfailed', (request) => complaints.push(`failed: ${request.url()}`));
  await page.goto(url, { timeout: 30_000 });
  return { page, complaints, requested };
}
