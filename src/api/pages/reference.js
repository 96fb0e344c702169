// Shows the document of the version that the page was asked for, and lets the reader choose.
const { versions, defaultVersion } = document.querySelector('#reference').dataset;
const asked = new URLSearchParams(location.search).get('version') ?? defaultVersion;
const documentOf = (version) => ({
  title: version,
  slug: version,
  url: `/openapi.json?version=${version}`,
  default: version === asked,
  agent: { disabled: true },
  // Without the header, an answer is in the version of the account and not in the one on the page.
  onBeforeRequest: ({ requestBuilder }) => {
    requestBuilder.headers.set('Corridor-Version', version);
  },
  // The colours are those of look.css; nothing is loaded from, or sent to, anybody else.
  theme: 'none',
  withDefaultFonts: false,
  telemetry: false,
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
  hideDarkModeToggle: true,
  hideModels: true,
  defaultOpenAllTags: true,
});
Scalar.createApiReference('#reference', versions.split(' ').map(documentOf));
