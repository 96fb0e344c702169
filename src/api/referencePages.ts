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
    `<main id="reference"><noscript>The reference requires JavaScript. The <a href="/openapi.json">OpenAPI document</a>, the <a href="/docs/guide">guide</a> and the <a href="/docs/errors">errors</a> do not.</noscript></main>
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
<p>${prose('Errors are returned as `application/problem+json` (RFC 9457). `code` is stable: use it in your program. `detail` is for people and may change. `param`, `expected` and `received` describe the first invalid parameter, in the notation of your request. `errors` lists all of them, at most 100. `request_id` identifies the request in our logs.')}</p>
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
      'Send an `Idempotency-Key` of 1 to 255 visible ASCII characters with every POST and DELETE. Use a new key for every new request. If you do not know whether a request succeeded, retry it with the same key: it is executed once, and the response is the current object, with `Idempotent-Replayed: true`.',
      'If you reuse a key with other parameters or on another route, you get 422 `idempotency_key_reused`. A malformed request (400) does not use up its key. A valid request that is refused (422) does, so use a new key after you correct it. Keys of payouts and batches are kept forever, others for 30 days.',
    ],
  ],
  [
    'versions',
    'Versions',
    [
      `Your account is pinned to the API version it was opened with (today \`${defaultApiVersion}\`); we never change it. To use another version, send \`Corridor-Version: DATE\` with a request, or set \`api_version\` with \`POST /v1/account\` for all requests. Every response states its version in \`Corridor-Version\`. The versions are ${[...apiVersions].reverse().join(' and ')}.`,
      'Within a version, we may add fields to objects and values to enumerations. Breaking changes come in a new version. A webhook endpoint receives events in the version that its account had when you created the endpoint.',
      'In `2026-06-01`, `rate` and `fee` are numbers. In `2026-11-15`, they are exact decimal strings.',
    ],
  ],
  [
    'webhooks',
    'Webhooks',
    [
      'We send events by POST and sign them according to Standard Webhooks 1.0. `webhook-signature` contains one `v1,` signature for each active secret: the HMAC-SHA256 of `webhook-id.webhook-timestamp.body`. Verify it with any library for that standard, or with this code:',
    ],
  ],
  [
    'limits',
    'Limits',
    [
      `A quote holds its rate for 30 seconds. A batch can have up to 10,000 payouts in a body of up to ${maxBodyBytes / 1024 / 1024} MiB; other bodies can have up to 64 KiB, and each object in them up to ${maxNames} names. The metadata of a payout can have up to 8 KiB as JSON. An amount is an integer in minor units from 1 to 10^14. A list returns up to 100 objects at a time. If each of several filters matches many payouts, narrow the list by \`created\`. Requests and items are limited per account: \`RateLimit\` shows what is left.`,
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
