import { readFileSync } from 'node:fs';
import { Marked, type Tokens } from 'marked';
import { apiVersions, defaultApiVersion } from '../contract/versions/index.js';
import { failuresToPause } from '../db/endpointHealth.js';
import { maximumBatchItems } from '../domain/batch.js';
import { meaningOf, refusalCodes } from '../domain/refusal.js';
import { statusReasons } from '../domain/statusReason.js';
import { retryPausesMs } from '../webhooks/retrySchedule.js';
import { maxBodyBytes, maxFields, maxNames } from './decoded.js';

/**
 * The pages of /docs as HTML, generated from the files in pages/. Codes, versions and limits are filled in
 * from the tables that define them. A test runs every example.
 */

/** All pages, in the order of the sidebar. The page `name` and its title are read from pages/name.md. */
const groups: Readonly<Record<string, readonly string[]>> = {
  'Get started': ['overview', 'quickstart', 'testing', 'going-live'],
  'Send money': ['payouts', 'quotes', 'beneficiaries', 'batches', 'webhooks'],
  'Use the API': ['requests', 'idempotency', 'errors', 'status-reasons', 'versions', 'limits'],
};
const names = Object.values(groups).flat();

function read(file: string): string {
  return readFileSync(new URL(`pages/${file}`, import.meta.url), 'utf8');
}

/** Replaces the `{{names}}` in a text. A name without a value is a bug, so a test builds every page. */
function fill(text: string, values: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\{\{(.+?)\}\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`A page has no value for ${name}.`);
    return value;
  });
}

const values = {
  'default version': defaultApiVersion,
  versions: apiVersions.toReversed().join(' and '),
  'batch items': maximumBatchItems.toLocaleString('en'),
  'batch values': maxFields.toLocaleString('en'),
  'batch MiB': `${maxBodyBytes / 1024 / 1024}`,
  names: `${maxNames}`,
  'status reasons': [...statusReasons]
    .map(([code, { text, action }]) => `| <a id="${code}"></a>\`${code}\` | ${text} | ${action} |`)
    .join('\n'),
  failures: `${failuresToPause}`,
  attempts: `${retryPausesMs.length + 1}`,
  'retry schedule': retryPausesMs.map(retryLine).join('\n'),
};

/** A row of the retry table: the attempt, the time since the previous one, and the time since the first. */
function retryLine(pauseMs: number, index: number): string {
  const sinceMs = retryPausesMs.slice(0, index + 1).reduce((sum, one) => sum + one, 0);
  return `| ${index + 2} | ${duration(pauseMs)} | ${duration(sinceMs)} |`;
}

/** Formats a duration exactly: `5 s`, `2 min 35 s`, `1 h 37 min 35 s`. */
function duration(ms: number): string {
  const units = { h: Math.floor(ms / 3_600_000), min: Math.floor(ms / 60_000) % 60 };
  const parts = Object.entries({ ...units, s: Math.floor(ms / 1_000) % 60 });
  return parts.flatMap(([unit, count]) => (count === 0 ? [] : [`${count} ${unit}`])).join(' ');
}

/** Returns all pages: the path of each, and a function that builds it. `/docs` is the first page. */
export function docsPages(): readonly (readonly [path: string, make: () => string])[] {
  const pages = names.map((name, index) => [pathOf(name), () => docsPage(index)] as const);
  return [['/docs/', () => docsPage(0)], ...pages, ['/docs/reference', referencePage]];
}

const pathOf = (name: string) => (name === names[0] ? '/docs' : `/docs/${name}`);
const titleOf = (name: string) => /^# (.+)/.exec(read(`${name}.md`))?.[1] ?? name;
const linkTo = (name: string, attributes = '') =>
  `<a${attributes} href="${pathOf(name)}">${titleOf(name)}</a>`;

function docsPage(index: number): string {
  const name = names[index] ?? '';
  const markdown = read(`${name}.md`);
  const text = name === 'errors' ? explained(markdown) : fill(markdown, values);
  const lists = Object.entries(groups).map(([group, members]) => {
    const items = members.map((one) => linkTo(one, one === name ? ' aria-current="page"' : ''));
    return `<h2>${group}</h2>\n<ul>${items.map((item) => `<li>${item}</li>`).join('\n')}</ul>`;
  });
  const [before, after] = [names[index - 1], names[index + 1]];
  return fill(read('page.html'), {
    title: titleOf(name),
    content: markdownToHtml(text),
    sidebar: lists.join('\n'),
    before: before === undefined ? '' : linkTo(before, ' rel="prev"'),
    after: after === undefined ? '' : linkTo(after, ' rel="next"'),
  });
}

/** Builds the API reference. In the browser it loads /openapi.json. */
function referencePage(): string {
  return fill(read('reference.html'), {
    versions: apiVersions.join(' '),
    'default version': defaultApiVersion,
  });
}

/** Builds the errors page with an index. Every code has a section, which a problem's `type` links to. */
export function explained(markdown: string): string {
  const sections = markdown.split(/^(?=## )/m).slice(1);
  if (sections.length > refusalCodes.length) throw new Error('errors.md explains what is no code.');
  const byStatus = Map.groupBy(refusalCodes, (code) => meaningOf(code).status);
  const index = [...byStatus].map(([status, codes]) => {
    const links = codes.map((code) => `[\`${code}\`](#${code})`);
    return `| ${status} | ${links.join(' ')} |`;
  });
  const filled = refusalCodes.map((code, at) => {
    const section = sections[at];
    if (section?.startsWith(`## \`${code}\`\n`) !== true || !section.includes('\nWhat to do: ')) {
      throw new Error(`errors.md has to explain ${code}, as section ${at + 1}.`);
    }
    const { status, title } = meaningOf(code);
    return section.replace('\n', `\n\n**${status}** ${title}\n`);
  });
  const top = markdown.slice(0, markdown.indexOf('\n## '));
  return [fill(top, { index: index.join('\n') }), ...filled].join('\n');
}

/** Renders Markdown as HTML: headings are anchors, and adjacent code in several languages is one snippet. */
function markdownToHtml(markdown: string): string {
  const html = new Marked({ renderer: { heading, code } }).parse(markdown, { async: false });
  // A code block directly after another one belongs to the same snippet. A wide table scrolls by itself.
  return html
    .replaceAll(/(?:<figure[\s\S]*?<\/figure>\n)+/g, '<div class="snippet">\n$&</div>\n')
    .replaceAll(/<table>[\s\S]*?<\/table>/g, '<div class="table" tabindex="0">$&</div>');
}

function heading({ depth, text }: Tokens.Heading): string {
  const id = (text.toLowerCase().match(/\w+/g) ?? []).join('-');
  const html = new Marked().parseInline(text, { async: false });
  const anchor = `<a class="anchor" href="#${id}" aria-label="Link to this section">#</a>`;
  return depth === 1
    ? `<h1>${html}</h1>\n`
    : `<h${depth} id="${id}">${html} ${anchor}</h${depth}>\n`;
}

function code({ text, lang = '' }: Tokens.Code): string {
  const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return `<figure data-language="${lang}"><pre tabindex="0"><code>${escaped}</code></pre></figure>\n`;
}
