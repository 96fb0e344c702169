import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { estimatedArrival, schemeOf } from '../../src/domain/arrival.js';
import calendars from '../../src/domain/bankCalendars.json' with { type: 'json' };
import { corridorCurrencies } from '../../src/domain/corridor.js';

const beginning = new Date('2026-01-01T00:00:00Z');
const closedDays = (currency: string, year: string) =>
  schemeOf(currency, beginning).closed[year]?.split(' ');

describe('the calendar of', () => {
  // "Long-term calendar for TARGET closing days", European Central Bank, 14 December 2000: New Year's
  // Day, Good Friday, Easter Monday, 1 May, Christmas Day and 26 December; here those on weekdays.
  it.each([
    ['2026', '01-01 04-03 04-06 05-01 12-25'],
    ['2027', '01-01 03-26 03-29'],
    ['2028', '04-14 04-17 05-01 12-25 12-26'],
  ])('TARGET in %s matches that of the European Central Bank', (year, days) => {
    expect(closedDays('EUR', year)).toEqual(days.split(' '));
  });

  // "K.8: Holidays Observed by the Federal Reserve System 2026-2030": the banks are open on the Friday
  // before a holiday that falls on a Saturday, and closed on the Monday after a Sunday.
  it.each([
    ['2026', '01-01 01-19 02-16 05-25 06-19 09-07 10-12 11-11 11-26 12-25'],
    ['2027', '01-01 01-18 02-15 05-31 07-05 09-06 10-11 11-11 11-25'],
    ['2028', '01-17 02-21 05-29 06-19 07-04 09-04 10-09 11-23 12-25'],
  ])('Fedwire and ACH in %s matches that of the Federal Reserve', (year, days) => {
    expect(closedDays('USD', year)).toEqual(days.split(' '));
  });

  // The Bank of England closes CHAPS on the bank holidays of England and Wales, as GOV.UK lists them.
  it.each([
    ['2026', '01-01 04-03 04-06 05-04 05-25 08-31 12-25 12-28'],
    ['2027', '01-01 03-26 03-29 05-03 05-31 08-30 12-27 12-28'],
    ['2028', '01-03 04-14 04-17 05-01 05-29 08-28 12-25 12-26'],
  ])('CHAPS in %s matches that of England and Wales', (year, days) => {
    expect(closedDays('GBP', year)).toEqual(days.split(' '));
  });

  // National holidays by the Cabinet Office, and 31 December to 3 January (Banking Act, article 15).
  it.each([
    [
      '2026',
      '01-01 01-02 01-12 02-11 02-23 03-20 04-29 05-04 05-05 05-06 07-20 08-11 09-21 09-22 09-23 10-12 11-03 11-23 12-31',
    ],
    [
      '2027',
      '01-01 01-11 02-11 02-23 03-22 04-29 05-03 05-04 05-05 07-19 08-11 09-20 09-23 10-11 11-03 11-23 12-31',
    ],
  ])('Zengin in %s matches that of Japanese banks', (year, days) => {
    expect(closedDays('JPY', year)).toEqual(days.split(' '));
  });

  it('each currency has the same years, real days and its weekend', () => {
    expect(Object.keys(calendars).sort()).toEqual([...corridorCurrencies()].sort());
    for (const currency of corridorCurrencies()) {
      const { closed, business_days, zone, cut_off } = schemeOf(currency, beginning);
      expect(Object.keys(closed), currency).toEqual(['2026', '2027', '2028']);
      const isGulf = ['ILS', 'KWD', 'SAR'].includes(currency);
      expect(business_days).toHaveLength(5);
      expect(business_days.includes('sunday'), currency).toBe(isGulf);
      expect(business_days.includes('friday'), currency).toBe(!isGulf);
      expect(business_days.includes('saturday'), currency).toBe(false);
      expect(cut_off).toMatch(/^1[0-7]:00$/);
      expect(() => new Intl.DateTimeFormat('en', { timeZone: zone }), zone).not.toThrow();
      for (const [year, days] of Object.entries(closed)) {
        for (const day of days.split(' ')) {
          const at = new Date(`${year}-${day}T00:00:00.000Z`);
          expect(at.toISOString(), currency).toMatch(`${year}-${day}`);
          expect([isGulf ? 5 : 0, 6], `${currency} ${year}-${day}`).not.toContain(at.getUTCDay());
        }
      }
    }
  });

  it('has editions that never change, so that estimates of the past stay as they were', () => {
    const editions = Object.entries(calendars)
      .flatMap(([currency, all]) => all.map((edition) => ({ currency, ...edition })))
      .sort((one, other) => (one.from < other.from ? -1 : one.from > other.from ? 1 : 0));
    // Each release adds its number of editions and their digest. Lines may be added, but never changed.
    for (const [count, digest] of [[41, '297163118e4f2035']] as const) {
      const then = JSON.stringify(editions.slice(0, count));
      expect(createHash('sha256').update(then).digest('hex').slice(0, 16)).toBe(digest);
    }
    expect(editions).toHaveLength(41);
    for (const { from } of editions) expect(from).toMatch(/^\d{4}-\d\d-\d\d$/);
    expect(new Set(editions.map(({ currency, from }) => `${currency} ${from}`)).size).toBe(41);
  });
});

describe('a payout', () => {
  const cases: readonly (readonly [string, string, string, string])[] = [
    // Case, currency pair, accepted at, latest arrival.
    ['before the cut-off', 'GBP GBP', '2026-11-23T14:59:59.999Z', '2026-11-23T23:59:59.999Z'],
    ['at the cut-off', 'GBP GBP', '2026-11-23T15:00:00.000Z', '2026-11-24T23:59:59.999Z'],
    ['a day later', 'EUR EUR', '2026-11-23T12:59:00Z', '2026-11-24T22:59:59.999Z'],
    ['in summer', 'EUR EUR', '2026-07-20T11:59:00Z', '2026-07-21T21:59:59.999Z'],
    ['after it in summer', 'EUR EUR', '2026-07-20T12:00:00Z', '2026-07-22T21:59:59.999Z'],
    ['over the change to winter', 'EUR EUR', '2026-10-23T11:59:00Z', '2026-10-26T22:59:59.999Z'],
    ['over the change to summer', 'EUR EUR', '2026-03-27T13:30:00Z', '2026-03-31T21:59:59.999Z'],
    // 31 August 2026 is the summer bank holiday.
    ['on a Friday before a holiday', 'GBP GBP', '2026-08-28T13:59:00Z', '2026-08-28T22:59:59.999Z'],
    ['late on that Friday', 'GBP GBP', '2026-08-28T14:00:00Z', '2026-09-01T22:59:59.999Z'],
    // Wednesday evening, Thursday, and Sunday in Riyadh.
    ['into the Gulf’s weekend', 'SAR SAR', '2026-11-18T09:00:00Z', '2026-11-22T20:59:59.999Z'],
    ['on a Sunday in the Gulf', 'SAR SAR', '2026-11-22T08:59:00Z', '2026-11-23T20:59:59.999Z'],
    ['from Europe to the Gulf', 'EUR SAR', '2026-11-20T08:00:00Z', '2026-11-24T20:59:59.999Z'],
    ['in Dubai on a Friday', 'AED AED', '2026-11-20T06:59:00Z', '2026-11-23T19:59:59.999Z'],
    ['at the end of the year', 'JPY JPY', '2026-12-30T05:00:00Z', '2027-01-04T14:59:59.999Z'],
    // Open in Tokyo, closed in New York for Thanksgiving.
    ['from where it is closed', 'USD JPY', '2026-11-26T01:00:00Z', '2026-11-27T14:59:59.999Z'],
    ['only to there', 'JPY JPY', '2026-11-26T01:00:00Z', '2026-11-26T14:59:59.999Z'],
    ['over two holidays', 'CNY KWD', '2026-02-12T12:00:00Z', '2026-03-01T20:59:59.999Z'],
    // It leaves New York on Wednesday, so the holiday there on Thursday delays nothing.
    ['that has left', 'USD EUR', '2026-11-25T12:00:00Z', '2026-11-26T22:59:59.999Z'],
    ['by local time, not by UTC', 'JPY JPY', '2026-11-24T15:00:00Z', '2026-11-25T14:59:59.999Z'],
    ['on the last known day', 'GBP GBP', '2028-12-29T12:00:00Z', '2028-12-29T23:59:59.999Z'],
  ];
  it.each(cases)('%s: %s at %s', (_, pair, at, expected) => {
    const [source = '', destination = ''] = pair.split(' ');
    expect(estimatedArrival(source, destination, new Date(at))?.toISOString()).toBe(expected);
  });

  it('has no estimate for a year without a calendar', () => {
    expect(estimatedArrival('GBP', 'GBP', new Date('2028-12-29T15:00:00Z'))).toBeNull();
    expect(estimatedArrival('GBP', 'GBP', new Date('2025-12-31T12:00:00Z'))).toBeNull();
    expect(() => estimatedArrival('GBP', 'XXX', beginning)).toThrow('no bank calendar of XXX');
  });

  it('arrives at the end of a local day on every day of the calendars, also when clocks change', () => {
    // Collected, because an assertion for each of 35,000 days takes seconds.
    const wrong: string[] = [];
    for (const currency of corridorCurrencies()) {
      const { zone } = schemeOf(currency, beginning);
      const clock = new Intl.DateTimeFormat('en-GB', { timeZone: zone, timeStyle: 'medium' });
      for (let day = 0; day < 3 * 365 - 30; day += 1) {
        const at = new Date(beginning.getTime() + day * 24 * 60 * 60_000);
        const arrival = estimatedArrival(currency, currency, at) ?? beginning;
        const isAtTheEnd = clock.format(arrival) === '23:59:59';
        if (!isAtTheEnd || arrival.getUTCMilliseconds() !== 999)
          wrong.push(`${currency} ${at.toISOString()}: ${arrival.toISOString()}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  /** Created once per zone, as creating a format takes longer than using it. */
  const formats = new Map<string, ReturnType<typeof createFormats>>();
  const createFormats = (timeZone: string) => {
    const format = (options: Intl.DateTimeFormatOptions) =>
      new Intl.DateTimeFormat('en-CA', { timeZone, ...options });
    return {
      weekday: format({ weekday: 'long' }),
      day: format({ year: 'numeric', month: '2-digit', day: '2-digit' }),
      time: format({ timeStyle: 'medium', hourCycle: 'h23' }),
    };
  };
  const formatsOf = (zone: string) => {
    const created = formats.get(zone) ?? createFormats(zone);
    formats.set(zone, created);
    return created;
  };

  const currency = fc.constantFrom(...corridorCurrencies());
  // After this range an arrival may be later than the last known year.
  const instant = fc.date({
    min: beginning,
    max: new Date('2028-12-10T00:00:00Z'),
    noInvalidDate: true,
  });

  // The longest duration for any pair and day is 17.4: from the Spring Festival into Kuwait's national days.
  it('arrives within 18 days, on a business day, and never before an earlier payout', () => {
    fc.assert(
      fc.property(currency, currency, instant, instant, (source, destination, one, other) => {
        const [earlier, later] = one < other ? [one, other] : [other, one];
        const arrivals = [earlier, later].map((at) => {
          const arrival = estimatedArrival(source, destination, at);
          if (arrival === null) throw new Error('The arrival has no estimate.');
          expect(arrival.getTime()).toBeGreaterThan(at.getTime());
          expect(arrival.getTime() - at.getTime()).toBeLessThan(18 * 24 * 60 * 60_000);
          const { zone, business_days, closed } = schemeOf(destination, at);
          const { weekday, day, time } = formatsOf(zone);
          expect(business_days).toContain(weekday.format(arrival).toLowerCase());
          const date = day.format(arrival);
          expect(closed[date.slice(0, 4)]).not.toContain(date.slice(5));
          expect(time.format(arrival)).toBe('23:59:59');
          return arrival.getTime();
        });
        expect(arrivals[0]).toBeLessThanOrEqual(arrivals[1] ?? 0);
      }),
      { numRuns: 3_000 },
    );
  });
});

describe('a later edition', () => {
  it('applies to payouts accepted from its first day on, and not to earlier ones', async () => {
    vi.resetModules();
    const [pounds] = calendars.GBP;
    if (pounds === undefined) throw new Error('The calendar has no edition.');
    const closed = { ...pounds.closed, 2026: '12-03' };
    const later = { ...pounds, from: '2026-12-02', cut_off: '10:00', closed };
    vi.doMock('../../src/domain/bankCalendars.json', () => ({
      default: { ...calendars, GBP: [pounds, later] },
    }));
    const changed = await import('../../src/domain/arrival.js');
    vi.doUnmock('../../src/domain/bankCalendars.json');
    const arrivalAt = (at: string) =>
      changed.estimatedArrival('GBP', 'GBP', new Date(at))?.toISOString();
    // An estimate of the evening before is kept, although the bank will be closed on Thursday.
    expect(arrivalAt('2026-12-01T23:59:59.999Z')).toBe('2026-12-02T23:59:59.999Z');
    expect(arrivalAt('2026-12-02T09:59:00Z')).toBe('2026-12-02T23:59:59.999Z');
    expect(arrivalAt('2026-12-02T10:00:00Z')).toBe('2026-12-04T23:59:59.999Z');
  });
});
