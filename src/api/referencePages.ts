import { errorGuide } from '../contract/errorGuide.js';
import { apiVersions, defaultApiVersion } from '../contract/versions/index.js';
import { meaningOf, refusalCodes } from '../domain/refusal.js';
import { maxBodyBytes, maxNames } from './decoded.js';

/**
 * The pages of /docs, as HTML. What they say of codes, versions and limits is read from the
 * tables that decide them; a test runs the example of the guide.
 */

/** Text as HTML; words between backticks are code. */
function prose(text: string): string {
  const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
  return escaped.replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}

function page(title: string, content: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="/docs/favicon.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/page.css">
</head>
<body>
<nav><a href="/docs">Reference</a> <a href="/docs/guide">Guide</a> <a href="/docs/errors">Errors</a> <a href="/openapi.json">OpenAPI</a></nav>
${content}
</body>
</html>
`;
}

/** The reference: it reads /openapi.json in the browser. */
export function referencePage(): string {
  const versions = apiVersions.map(
    (version) => `<a href="/docs?version=${version}">version ${version}</a>`,
  );
  return page(
    'Corridor: reference',
    `<main id="reference"><noscript>The reference needs JavaScript; <a href="/openapi.json">the document it shows</a>, <a href="/docs/guide">the guide</a> and <a href="/docs/errors">the errors</a> do not.</noscript></main>
<footer>${versions.join(' · ')}</footer>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/page.js"></script>`,
  );
}

/** Shows the document of the version that the page was asked for. */
export const referenceScript = `SwaggerUIBundle({
  url: '/openapi.json' + location.search,
  dom_id: '#reference',
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
`;

export const pageStyle = `body { margin: 0; font-family: sans-serif; line-height: 1.5; color: #222; background: #fff; }
nav, footer, article { max-width: 60rem; margin: 0 auto; padding: 0.75rem 1.25rem; }
nav a { margin-right: 1rem; }
section { border-top: 1px solid #ddd; }
section:target { background: #fff8d6; }
article pre { padding: 0.75rem; overflow-x: auto; background: #f4f4f4; }
`;

/** Every stable code, with an anchor of its own: the `type` of a problem leads here. */
export function errorsPage(): string {
  const sections = refusalCodes.map((code) => {
    const { status, title } = meaningOf(code);
    const { meaning, remedy } = errorGuide[code];
    return `<section id="${code}">
<h2><code>${code}</code></h2>
<p><strong>${status}</strong> ${prose(title)}</p>
<p>${prose(meaning)}</p>
<p>What to do: ${prose(remedy)}</p>
</section>`;
  });
  return page(
    'Corridor: errors',
    `<article>
<h1>Errors</h1>
<p>${prose('What is refused is answered as `application/problem+json` (RFC 9457). `code` is stable, for programs; `detail` is for people and may change. `param`, `expected` and `received` tell the first parameter that failed, in the notation it was sent in, and `errors` lists all of them, at most 100. `request_id` finds the request in our log.')}</p>
${sections.join('\n')}
</article>`,
  );
}

/** Short enough to be written again in any language: a base64 key, and a text with two dots. */
const verification = `import { createHmac, timingSafeEqual } from 'node:crypto';

export function isGenuine(headers, body, secret) {
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const signed = headers['webhook-id'] + '.' + headers['webhook-timestamp'] + '.' + body;
  const expected = createHmac('sha256', key).update(signed).digest();
  const isRecent = Math.abs(Date.now() / 1000 - headers['webhook-timestamp']) < 300;
  return isRecent && headers['webhook-signature'].split(' ').some((signature) => {
    const sent = Buffer.from(signature.replace(/^v1,/, ''), 'base64');
    return sent.length === expected.length && timingSafeEqual(sent, expected);
  });
}
`;

const guide: readonly (readonly [id: string, title: string, paragraphs: readonly string[]])[] = [
  [
    'idempotency',
    'Idempotency',
    [
      'Send an `Idempotency-Key` of 1 to 255 visible ASCII characters with every POST and DELETE, a new one for every new request. When you do not know what became of a request, send it again with the same key: it is done once, and the answer is the object as it is now, with `Idempotent-Replayed: true`.',
      'The same key with other parameters, or on another route, is refused with 422 `idempotency_key_reused`. A malformed request (400) binds no key; a request that was understood and refused (422) does, so a corrected one takes a new key. Keys of payouts and batches are kept for ever, others for 30 days.',
    ],
  ],
  [
    'versions',
    'Versions',
    [
      `An account is pinned to the API version it was opened with (today \`${defaultApiVersion}\`) and is never moved by us. \`Corridor-Version: DATE\` chooses another for one request, \`POST /v1/account\` with \`api_version\` for all of them; every answer says in \`Corridor-Version\` which it is. There are ${[...apiVersions].reverse().join(' and ')}.`,
      'Within a version members may be added to objects, and values to enumerations. Changes that break a client come in a new version. A webhook endpoint is sent the version that its account had when the endpoint was stored.',
      'In `2026-06-01` `rate` and `fee` are numbers; in `2026-11-15` they are decimal strings, exact to the last digit.',
    ],
  ],
  [
    'webhooks',
    'Webhooks',
    [
      'Events are sent by POST and signed by Standard Webhooks 1.0: `webhook-signature` holds one `v1,` signature for each secret in use, the HMAC-SHA256 of `webhook-id.webhook-timestamp.body`. Any library of that standard verifies it, or this:',
    ],
  ],
  [
    'limits',
    'Limits',
    [
      `A quote holds its rate for 30 seconds. A batch takes up to 10,000 payouts in a body of up to ${maxBodyBytes / 1024 / 1024} MiB; other bodies take up to 64 KiB, and an object of them up to ${maxNames} names. The metadata of a payout is up to 8 KiB as JSON. An amount is an integer of minor units from 1 to 10^14. A list gives up to 100 objects at a time; where each of several filters names many payouts, narrow it by \`created\`. Requests and items are counted by account: \`RateLimit\` says what is left.`,
    ],
  ],
];

export function guidePage(): string {
  const sections = guide.map(([id, title, paragraphs]) => {
    const code = id === 'webhooks' ? `<pre><code>${prose(verification)}</code></pre>` : '';
    const texts = paragraphs.map((text) => `<p>${prose(text)}</p>`).join('\n');
    return `<section id="${id}">\n<h2>${title}</h2>\n${texts}\n${code}</section>`;
  });
  return page('Corridor: guide', `<article>\n<h1>Guide</h1>\n${sections.join('\n')}\n</article>`);
}
