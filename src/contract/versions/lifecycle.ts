import type { ApiVersion } from './index.js';

/** When a version goes out of use; a date that is still to come announces it. */
export type VersionLife = {
  /** From then on no integration should use it. */
  readonly deprecatedAt?: Date;
  /** From then on it may be refused; never before it is deprecated. */
  readonly sunsetAt?: Date;
};

const lives: Readonly<Record<ApiVersion, VersionLife>> = {
  '2026-11-15': {},
  '2026-06-01': {},
};

/**
 * What every answer says of the version it is rendered in: its name, and of one that goes out
 * of use `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and where to read about it.
 */
export function versionHeaders(
  version: ApiVersion,
  { deprecatedAt, sunsetAt }: VersionLife = lives[version],
): Readonly<Record<string, string>> {
  const headers: Record<string, string> = { 'Corridor-Version': version };
  if (deprecatedAt !== undefined) {
    headers['Deprecation'] = `@${Math.floor(deprecatedAt.getTime() / 1000)}`;
    headers['Link'] = '</docs/guide#versions>; rel="deprecation"; type="text/html"';
  }
  if (sunsetAt !== undefined) headers['Sunset'] = sunsetAt.toUTCString();
  return headers;
}
