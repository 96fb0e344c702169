import { expect, test } from 'vitest';
import { apiVersions, versionHeaders } from '../../src/contract/versions/index.js';

const deprecatedAt = new Date('2027-06-01T00:00:00.000Z');
const sunsetAt = new Date('2028-06-01T00:00:00.000Z');

test('no current version is deprecated', () => {
  for (const version of apiVersions) {
    expect(versionHeaders(version)).toEqual({ 'Corridor-Version': version });
  }
});

test('a deprecated version states since when, and links to its documentation (RFC 9745)', () => {
  expect(versionHeaders('2026-06-01', { deprecatedAt })).toEqual({
    'Corridor-Version': '2026-06-01',
    Deprecation: '@1811808000',
    Link: '</docs/versions>; rel="deprecation"; type="text/html"',
  });
});

test('a version with a sunset states it as an HTTP date (RFC 8594)', () => {
  expect(versionHeaders('2026-06-01', { deprecatedAt, sunsetAt })).toMatchObject({
    Deprecation: '@1811808000',
    Sunset: 'Thu, 01 Jun 2028 00:00:00 GMT',
  });
});
