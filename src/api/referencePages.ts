import { readFileSync } from 'node:fs';
import { apiVersions, defaultApiVersion } from '../contract/versions/index.js';
import { maximumBatchItems } from '../domain/batch.js';
import { meaningOf, refusalCodes } from '../domain/refusal.js';
import { maxBodyBytes, maxNames } from './decoded.js';

/**
 * The pages of /docs, as HTML, made of the files in pages/. What they say of codes, versions and
 * limits is filled in from the tables that decide them; a test runs the example of the guide.
 */

function read(file: string): string {
  return readFileSync(new URL(`pages/${file}`, import.meta.url), 'utf8');
}

/** A text with its `{{names}}` replaced. A name without a value is a bug, and nothing starts. */
function fill(text: string, values: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\{\{(.+?)\}\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`A page has no value for ${name}.`);
    return value;
  });
}

function page(title: string, content: string): string {
  return fill(read('page.html'), { title, content: content.trimEnd() });
}

/** The reference: it reads /openapi.json in the browser. */
export function referencePage(): string {
  const versions = apiVersions.map(
    (version) => `<a href="/docs?version=${version}">version ${version}</a>`,
  );
  return page('reference', fill(read('reference.html'), { versions: versions.join(' · ') }));
}

/** Every stable code, with an anchor of its own: the `type` of a problem leads here. */
export function errorsPage(markdown = read('errors.md')): string {
  const [top, ...sections] = sectionsOf(markdown);
  if (sections.length > refusalCodes.length) throw new Error('errors.md explains what is no code.');
  const explained = refusalCodes.map((code, index) => {
    const section = sections[index];
    if (section?.id !== code || !section.html.includes('<p>What to do: ')) {
      throw new Error(`errors.md has to explain ${code}, as section ${index + 1}.`);
    }
    const { status, title } = meaningOf(code);
    return {
      ...section,
      html: `<p><strong>${status}</strong> ${prose(title)}</p>\n${section.html}`,
    };
  });
  return article(top, explained);
}

export function guidePage(): string {
  const [top, ...sections] = sectionsOf(
    fill(read('guide.md'), {
      'default version': defaultApiVersion,
      versions: apiVersions.toReversed().join(' and '),
      'batch items': maximumBatchItems.toLocaleString('en'),
      'batch MiB': `${maxBodyBytes / 1024 / 1024}`,
      names: `${maxNames}`,
    }),
  );
  return article(top, sections);
}

type Section = { readonly id: string; readonly heading: string; readonly html: string };

function article(top: Section | undefined, sections: readonly Section[]): string {
  const { id = '', heading, html } = top ?? {};
  const anchored = sections.map(
    (section) =>
      `<section id="${section.id}">\n<h2>${section.heading}</h2>\n${section.html}\n</section>`,
  );
  return page(id, `<article>\n<h1>${heading}</h1>\n${html}\n${anchored.join('\n')}\n</article>`);
}

/** Each heading of a Markdown text, with what follows it. */
function sectionsOf(markdown: string): readonly Section[] {
  const parts = markdown.split(/^##? /m).slice(1);
  return parts.map((part) => {
    const [heading = '', ...lines] = part.split('\n');
    const id = heading.replaceAll('`', '').toLowerCase();
    return { id, heading: prose(heading), html: blocksOf(lines.join('\n')) };
  });
}

/** Paragraphs and fenced code, which is all the Markdown there is between the headings. */
function blocksOf(markdown: string): string {
  const blocks = [...markdown.matchAll(/^```\w*\n([\s\S]*?)^```$|(?:^.+\n)+/gm)].map(
    ([text, code]) =>
      code === undefined
        ? `<p>${prose(text.trim().replaceAll('\n', ' '))}</p>`
        : `<pre><code>${escaped(code)}</code></pre>`,
  );
  return blocks.join('\n');
}

/** Text as HTML; words between backticks are code. */
function prose(text: string): string {
  return escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
