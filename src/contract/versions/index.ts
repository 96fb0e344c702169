import { toNumbers } from './2026-06-01.js';

/** An object as integrators see it, of any type and version. */
export type JsonObject = { readonly [name: string]: unknown };

/** The API versions, newest first. Handlers return the first; the others are converted from it. */
export const apiVersions = ['2026-11-15', '2026-06-01'] as const;
export type ApiVersion = (typeof apiVersions)[number];

/** What a version must be, in the words of a refusal. */
export const versionExpected = `one of ${apiVersions.join(', ')}`;

/** The version of a new account: the specification's shapes. */
export const defaultApiVersion: ApiVersion = '2026-06-01';

/** Converts an object to each version from the one before it in the list, newest first. */
const downConverters: Readonly<Record<ApiVersion, (object: JsonObject) => JsonObject>> = {
  '2026-11-15': (object) => object,
  '2026-06-01': toNumbers,
};

export function isApiVersion(text: string): text is ApiVersion {
  return apiVersions.some((version) => version === text);
}

/** Returns the version with a stored name, or the default if that name is no longer known. */
export const versionNamed = (name: string): ApiVersion =>
  isApiVersion(name) ? name : defaultApiVersion;

/** Renders an object of the newest version in another one, including the objects inside it. */
export function render(object: JsonObject, version: ApiVersion): JsonObject {
  const steps = apiVersions.slice(0, apiVersions.indexOf(version) + 1);
  return steps.reduce((older, step) => convert(older, downConverters[step]), object);
}

function convert(object: JsonObject, step: (object: JsonObject) => JsonObject): JsonObject {
  const { object: type, data, quote } = object;
  const inside = (value: unknown) => (isObject(value) ? convert(value, step) : value);
  if (Array.isArray(data)) return { ...object, data: data.map(inside) };
  if (type === 'event') return { ...object, data: inside(data) };
  // Of the objects that a payout may be expanded with, only a quote differs between versions.
  return step(isObject(quote) ? { ...object, quote: convert(quote, step) } : object);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** When a version goes out of use. A date in the future announces this. */
export type VersionLife = {
  /** From then on no integration should use it. */
  readonly deprecatedAt?: Date;
  /** From then on it may be refused. This is never before it is deprecated. */
  readonly sunsetAt?: Date;
};

const lives: Readonly<Record<ApiVersion, VersionLife>> = {
  '2026-11-15': {},
  '2026-06-01': {},
};

/**
 * Returns the headers about the version of a response: its name and, if it is going out of use, `Deprecation`
 * (RFC 9745), `Sunset` (RFC 8594) and a link to read about it.
 */
export function versionHeaders(
  version: ApiVersion,
  { deprecatedAt, sunsetAt }: VersionLife = lives[version],
): Readonly<Record<string, string>> {
  const headers: Record<string, string> = { 'Corridor-Version': version };
  if (deprecatedAt !== undefined) {
    headers['Deprecation'] = `@${Math.floor(deprecatedAt.getTime() / 1000)}`;
    headers['Link'] = '</docs/versions>; rel="deprecation"; type="text/html"';
  }
  if (sunsetAt !== undefined) headers['Sunset'] = sunsetAt.toUTCString();
  return headers;
}
