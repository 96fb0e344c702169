import { expect, it } from 'vitest';
import { z } from 'zod';
import { type Attempt, pauseBeforeRetryMs } from '../../clients/typescript/src/retry.js';
import { python } from './languages.js';

/** The result of an attempt, and the minimum and maximum pause before the next one in milliseconds. */
type Case = readonly [Attempt & { readonly retries: number }, number | null, number | null];

const nowMs = Date.parse('2026-11-21T12:00:00Z');

const repeated = ([status, code]: readonly [number, string?]): Case => [
  { status, retries: 0, ...(code === undefined ? {} : { code }) },
  ...([250, 750] as const),
];
const final = (kind: readonly [number, string?]): Case => [repeated(kind)[0], null, null];

const cases: readonly Case[] = [
  // No response.
  [{ retries: 0 }, 250, 750],
  [{ retries: 3 }, 2_000, 6_000],
  [{ retries: 9 }, 4_000, 12_000],
  // Retry-After is the minimum pause.
  [{ status: 429, code: 'rate_limited', retryAfter: '7', retries: 0 }, 7_000, 7_700],
  [{ status: 503, retryAfter: 'Sat, 21 Nov 2026 12:00:10 GMT', retries: 0 }, 10_000, 11_000],
  [{ status: 503, retryAfter: 'Sat, 21 Nov 2026 11:00:00 GMT', retries: 0 }, 250, 750],
  [{ status: 503, retryAfter: 'soon', retries: 0 }, 250, 750],
  [{ status: 429, code: 'rate_limited', retryAfter: '61', retries: 0 }, null, null],
  [{ status: 503, code: 'rate_unavailable', retryAfter: '5', retries: 0 }, 5_000, 5_500],
  // Codes that the errors page calls repeatable, and responses of proxies.
  ...(
    [
      [408, 'request_timeout'],
      [409, 'request_in_progress'],
    ] as const
  ).map(repeated),
  ...(
    [
      [429, 'too_many_in_flight'],
      [503, 'service_unavailable'],
    ] as const
  ).map(repeated),
  ...([[500, 'internal_error'], [429], [502], [503], [504]] as const).map(repeated),
  ...(
    [
      [400, 'parameter_invalid'],
      [409, 'payout_not_cancelable'],
    ] as const
  ).map(final),
  ...(
    [
      [422, 'quote_expired'],
      [503, 'rate_unavailable'],
    ] as const
  ).map(final),
  ...([[401, 'api_key_invalid'], [500], [404], [307], [409]] as const).map(final),
];

/** The pauses at both ends of the random number in [0, 1) that the clients draw. */
const expected = [cases.map(([, least]) => least), cases.map(([, , most]) => most)];
const ends = [0, 1];

it('the TypeScript client waits as long as Retry-After says, else increasingly long', () => {
  const pauses = ends.map((random) =>
    cases.map(([{ retries, ...attempt }]) => {
      const pauseMs = pauseBeforeRetryMs(attempt, { retries, random, nowMs });
      return pauseMs === undefined ? null : Math.round(pauseMs);
    }),
  );
  expect(pauses).toEqual(expected);
});

it('the Python client does the same', async () => {
  const seconds = z.array(z.number().nullable());
  const noCaller = { apiUrl: '', apiKey: '' };
  const pauses = await Promise.all(
    ends.map(async (random) => {
      const attempts = cases.map(([attempt]) => ({ ...attempt, random }));
      const answer = seconds.parse(await python.run('pauses', noCaller, attempts));
      return answer.map((pause) => (pause === null ? null : Math.round(pause * 1_000)));
    }),
  );
  expect(pauses).toEqual(expected);
});
