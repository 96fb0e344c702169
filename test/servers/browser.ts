import chromium from '@sparticuz/chromium';
import {
  type Browser,
  type BrowserContextOptions,
  chromium as launcher,
  type Page,
} from 'playwright-core';

export type Visit = {
  readonly page: Page;
  /** What the page complained of: errors, warnings, refused loads, policy violations. */
  readonly complaints: readonly string[];
  /** Every URL that was asked for. */
  readonly requested: readonly string[];
};

/** A real Chromium, brought by a package, so that no machine needs to have one. */
export async function startBrowser(): Promise<Browser> {
  return launcher.launch({
    executablePath: await chromium.executablePath(),
    // The package's own flags switch off what is tested here, such as the web's security.
    args: ['--headless=shell', '--no-sandbox', '--no-zygote', '--disable-gpu'],
    timeout: 30_000,
  });
}

/** Opens a page and keeps what went wrong in it and what it asked for. */
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
