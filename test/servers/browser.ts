import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

/**
 * Starts a real Chromium, which comes from a package so that the machine needs none installed. The package
 * unpacks it into the folder for temporary files and takes whatever is there already, so this browser gets a
 * folder of its own: an interrupted run may have left half a browser.
 */
export async function startBrowser(): Promise<Browser> {
  const folder = await mkdtemp(join(tmpdir(), 'corridor-chromium-'));
  const browser = await launcher.launch({
    executablePath: await unpackedIn(folder),
    // The package's default flags disable things under test here, such as web security.
    args: ['--headless=shell', '--no-sandbox', '--no-zygote', '--disable-gpu'],
    timeout: 30_000,
  });
  return browser.once('disconnected', () => rmSync(folder, { recursive: true, force: true }));
}

async function unpackedIn(folder: string): Promise<string> {
  const { TMPDIR: shared } = process.env;
  process.env['TMPDIR'] = folder;
  try {
    return await chromium.executablePath();
  } finally {
    if (shared === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = shared;
  }
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
