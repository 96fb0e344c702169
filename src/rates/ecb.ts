import { timeIn } from '../domain/arrival.js';
import { isDay } from '../domain/day.js';
import { parseRate } from '../domain/fx.js';
import { isCurrency } from '../domain/money.js';
import { download, utf8 } from './download.js';
import type { RateSource, RateTable } from './rateSource.js';

export const ecbProvider = { provider: 'ecb', isForTests: false } as const;

/**
 * Creates a source of the European Central Bank's euro foreign exchange reference
 * rates, read from the daily XML file at `url` (`.../eurofxref-daily.xml`). `fetch`
 * throws on a status other than 200, a body over 256 KiB, an unexpected document
 * format, and if the whole exchange takes longer than `timeoutMs`. The default of
 * 10 s is many times what the download needs, and the schedule retries anyway.
 */
export function ecbSource(url: string, timeoutMs = 10_000): RateSource {
  return {
    ...ecbProvider,
    fetch: async () => parseEcbDaily(utf8(await download('The ECB rates', url, timeoutMs))),
  };
}

// The document contains one Cube for the day, which contains an empty Cube for each currency.
const dayCube = /<Cube\s+time=(["'])(\d{4}-\d{2}-\d{2})\1\s*>/g;
const rateCube = /<Cube\s+currency=(["'])([A-Z]{3})\1\s+rate=(["'])([\d.]{1,40})\3\s*\/>/g;
const anyCube = /<Cube[\s>/]/g;

/**
 * Parses the daily document: one day and at least one rate, in exactly the format that
 * the ECB publishes. Throws on anything else, so that a partly parsed table is never used.
 * Skips currencies that are missing from our ISO 4217 table: a new currency in the file
 * must not block the others.
 */
export function parseEcbDaily(xml: string): RateTable {
  const days = [...xml.matchAll(dayCube)];
  const rates = [...xml.matchAll(rateCube)];
  const day = days[0]?.[2];
  // The only Cubes allowed are the outermost one, the day and the rates. Any other is
  // an entry that the patterns above failed to match.
  const readable = 2 + rates.length === xml.match(anyCube)?.length;
  if (day === undefined || days.length !== 1 || rates.length === 0 || !readable) {
    throw new Error('The ECB rates do not have the form of the daily document');
  }
  const perEuro = new Map([['EUR', '1']]);
  for (const [, , currency = '', , rate = ''] of rates) {
    if (perEuro.has(currency)) throw new Error(`The ECB rates have ${currency} twice`);
    parseRate(rate);
    if (isCurrency(currency)) perEuro.set(currency, rate);
  }
  return { asOf: concertationOf(day), perEuro };
}

/** Returns the time of a day's rates: the ECB's concertation at 14:10 in Frankfurt. */
function concertationOf(day: string): Date {
  if (!isDay(day)) throw new Error(`The ECB rates have an invalid date: ${day}`);
  return timeIn('Europe/Berlin', `${day}T14:10:00`);
}
