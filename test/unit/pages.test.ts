import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { simulateOrders } from '../../sandbox/bank/orders.js';
import { reasonCodes } from '../../sandbox/bank/reasonCodes.js';
import { docsPages, explained } from '../../src/api/referencePages.js';
import { nextStatuses } from '../../src/domain/payout.js';
import { meaningOf, refusalCodes } from '../../src/domain/refusal.js';
import { statusReasons } from '../../src/domain/statusReason.js';
import {
  createSigner,
  createWebhookSecret,
  publicKeySet,
  readSigningKey,
  signWebhook,
} from '../../src/webhooks/signature.js';
import { orderEndings } from '../fixtures/orderEndings.js';

const sourceOf = (name: string) =>
  readFileSync(new URL(`../../src/api/pages/${name}.md`, import.meta.url), 'utf8');
const pages = new Map(docsPages().map(([path, make]) => [path, make()]));
const statusReasonsPage = pages.get('/docs/status-reasons') ?? '';
const errors = sourceOf('errors');
const section = /^## `quote_used`\n[\s\S]*?(?=^## )/m;

describe('the errors page', () => {
  it.each(refusalCodes)('lists and explains %s, with what to do about it', (code) => {
    const { status, title } = meaningOf(code);
    const page = pages.get('/docs/errors') ?? '';
    expect(page).toContain(`<a href="#${code}"><code>${code}</code></a>`);
    const [, text = ''] = page.split(`<h2 id="${code}">`);
    expect(text).toContain(`<strong>${status}</strong> ${title}`);
    expect(text.split('<h2 ')[0]).toMatch(/<p>What to do: [\s\S]+\.<\/p>/);
  });

  it.each([
    ['a code is missing', (text: string) => text.replace(section, '')],
    ['the last code is missing', (text: string) => text.slice(0, text.lastIndexOf('## '))],
    ['a code is explained twice', (text: string) => text + section.exec(text)?.[0]],
    ['it explains no code', (text: string) => `${text}\n## \`other\`\n\nWhat to do: Nothing.\n`],
    ['it does not say what to do', (text: string) => text.replace('What to do:', 'Else:')],
  ])('is not built when %s', (_, change) => {
    expect(change(errors)).not.toBe(errors);
    expect(() => explained(change(errors))).toThrow('errors.md');
  });
});

it.each([...reasonCodes.keys()])(
  'the page of status reasons explains what to do about %s',
  (code) => {
    const { text, action } = statusReasons.get(code) ?? { text: 'none', action: 'none' };
    const row = new RegExp(`<a id="${code}"></a>[\\s\\S]*?</tr>`).exec(statusReasonsPage)?.[0];
    const shown = row?.replaceAll('&#39;', "'");
    expect(shown).toContain(text);
    expect(shown).toContain(action);
  },
);

describe('every page', () => {
  it.each([...pages])('%s links only to pages and headings that exist', (path, html) => {
    expect(html).not.toMatch(/\{\{|```/);
    for (const [, link = ''] of html.matchAll(/href="([^"]+)"/g)) {
      if (/^(https:|\/openapi\.json|\/docs\/reference)/.test(link)) continue;
      if (/\.(css|svg)$/.test(link)) continue;
      const [page = '', anchor] = link.split('#');
      const target = page === '' ? html : pages.get(page);
      expect(target, `${path} links to ${link}`).toBeDefined();
      if (anchor !== undefined) expect(target, link).toMatch(new RegExp(`id="${anchor}"`));
    }
  });
});

it('every Markdown file has a page', () => {
  const files = readdirSync(new URL('../../src/api/pages/', import.meta.url));
  const written = files.flatMap((file) => (file.endsWith('.md') ? [file.slice(0, -3)] : []));
  expect(written.filter((name) => !pages.has(`/docs/${name}`))).toEqual(['overview']);
});

it('the diagram has every move of a payout, and no other', () => {
  const drawn = [...sourceOf('payouts').matchAll(/data-move="(\w+ \w+)"/g)].map(([, move]) => move);
  const moves = Object.entries(nextStatuses).flatMap(([from, next]) =>
    next.map((to) => `${from} ${to}`),
  );
  expect(new Set(drawn)).toEqual(new Set(moves));
});

it('the pages state the limits that the code has', () => {
  expect(pages.get('/docs/limits')).toContain('10,000');
  expect(pages.get('/docs/limits')).toContain('8 MiB');
});

it.each(simulateOrders)(
  'the sandbox page explains simulate: $order',
  ({ order, answer, afterwards }) => {
    const row = `| \`${order}\` | ${answer} | ${afterwards} | `;
    const [, rest = ''] = sourceOf('testing').split(row);
    const [cell = ''] = rest.split('\n');
    const seen = [...cell.matchAll(/`(\w+)`/g)].map(([, status]) => status);
    const { history = [] } = orderEndings[order] ?? {};
    // The first two statuses are named only if none follows: every payout has them, without a webhook.
    expect(seen).toEqual(history.length > 2 ? history.slice(2) : history.slice(-1));
  },
);

it.each([...reasonCodes.keys()])('the sandbox page lists the code %s', (code) => {
  const [, codes = ''] = /`CODE` is one of([^.]+)\./.exec(sourceOf('testing')) ?? [];
  expect(codes.split(/[\s,]+/)).toContain(code);
});

/** The verification code that the webhooks page shows under a heading. */
async function verificationUnder<Key extends z.ZodType>(heading: string, key: Key) {
  const section = sourceOf('webhooks').split(`\n## ${heading}\n`)[1] ?? '';
  const code = /```js\n([\s\S]*?)```/.exec(section)?.[1] ?? '';
  const loaded: unknown = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  const isGenuine = z.function({
    input: [z.record(z.string(), z.string()), z.string(), key],
    output: z.boolean(),
  });
  return z.object({ isGenuine }).parse(loaded).isGenuine;
}

describe('the verification code on the webhooks page', () => {
  it('accepts what we sign, and nothing else', async () => {
    const isGenuine = await verificationUnder('Verify without a client', z.string());
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
    const { 'webhook-signature': _unsigned, ...others } = signed(nowSeconds);
    expect([others, {}].map((headers) => isGenuine(headers, body, secret))).toEqual([false, false]);
  });

  it('accepts what our key signs, with the published keys', async () => {
    const isGenuine = await verificationUnder(
      'Verify without a secret',
      z.array(z.looseObject({})),
    );
    const [current, next, foreign] = [1, 2, 3].map((byte) =>
      readSigningKey(`whsk_${Buffer.alloc(32, byte).toString('base64')}`),
    );
    const body = '{"id":"evt_1"}';
    const nowSeconds = Math.floor(Date.now() / 1000);
    const signed = async (timestampSeconds: number, key = current) => {
      const secrets = [createWebhookSecret()];
      return {
        'webhook-id': 'evt_1',
        'webhook-timestamp': String(timestampSeconds),
        'webhook-signature': await createSigner(key)({
          ...{ id: 'evt_1', timestampSeconds, body, secrets, signature: 'v1a' },
        }),
      };
    };
    const { keys } = publicKeySet([next, current].flatMap((key) => key ?? []));
    expect(isGenuine(await signed(nowSeconds), body, keys)).toBe(true);
    expect(isGenuine(await signed(nowSeconds), `${body} `, keys)).toBe(false);
    expect(isGenuine(await signed(nowSeconds - 600), body, keys)).toBe(false);
    expect(isGenuine(await signed(nowSeconds, foreign), body, keys)).toBe(false);
    const { 'webhook-signature': _unsigned, ...others } = await signed(nowSeconds);
    expect([others, {}].map((headers) => isGenuine(headers, body, keys))).toEqual([false, false]);
  });
});
