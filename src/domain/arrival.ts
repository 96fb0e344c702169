import calendars from './bankCalendars.json' with { type: 'json' };

/**
 * How a currency is paid, for payouts accepted on or after the day `from` (00:00 UTC). A published edition
 * is never edited: a change is a new edition, so estimates of older payouts stay the same.
 * `tools/bankCalendars.py` generates the table and names its sources; half-days of banks count as closed.
 */
export type Scheme = {
  readonly from: string;
  readonly scheme: string;
  /** An IANA time zone. */
  readonly zone: string;
  /** HH:MM in the zone. A payout accepted at this time or later counts for the next business day. */
  readonly cut_off: string;
  /** Maximum number of business days after that day until the beneficiary's bank has credited the payout. */
  readonly settlement_days: number;
  readonly business_days: readonly string[];
  /** Bank holidays by year, as MM-DD. A year is missing while its holidays are not published. */
  readonly closed: Readonly<Record<string, string>>;
};

const table: ReadonlyMap<string, readonly Scheme[]> = new Map(Object.entries(calendars));

const weekday = new Intl.DateTimeFormat('en', { weekday: 'long', timeZone: 'UTC' });

/**
 * Returns the scheme of a currency for a payout accepted at the given time.
 *
 * @throws Error for a currency that cannot be paid
 */
export function schemeOf(currency: string, at: Date): Scheme {
  const editions = table.get(currency) ?? [];
  const day = at.toISOString().slice(0, 10);
  const scheme = editions.findLast(({ from }) => from <= day) ?? editions[0];
  if (scheme === undefined) throw new Error(`There is no bank calendar of ${currency}.`);
  return scheme;
}

/**
 * Maximum number of days to search, longer than the banks of any two countries are closed at once.
 * Without it a faulty table would cause an endless loop.
 */
const mostDays = 31;

/**
 * Returns the latest arrival of a payout accepted (and so funded) at the given time: the last millisecond
 * of a business day of the destination. Counting starts on the first day that is a business day of both
 * currencies and whose cut-off at the destination has not passed. Returns null where the calendar of
 * a year is not published: a guess from weekends alone would break the promise at every bank holiday.
 */
export function estimatedArrival(source: string, destination: string, at: Date): Date | null {
  // Cut-offs are whole minutes, so the estimate is the same for every moment of a minute.
  const cacheKey = `${source} ${destination} ${Math.floor(at.getTime() / 60_000)}`;
  const known = estimates.get(cacheKey);
  if (known !== undefined) return known;
  const estimate = computeArrival(source, destination, at);
  if (estimates.size >= mostEstimates) estimates.clear();
  estimates.set(cacheKey, estimate);
  return estimate;
}

/** Cache of estimates: a batch needs 10,000 of them within seconds, and each takes 10 µs to compute. */
const estimates = new Map<string, Date | null>();

/** Maximum size of the cache: more than all currency pairs, which a listing of the corridors requests. */
const mostEstimates = 4_000;

function computeArrival(source: string, destination: string, at: Date): Date | null {
  const scheme = schemeOf(destination, at);
  const [today = '', time = ''] = localTime(at, scheme.zone).split(' ');
  let day = time < scheme.cut_off ? today : nextDay(today);
  let left = scheme.settlement_days;
  let schemes = [scheme, schemeOf(source, at)];
  for (let searched = 0; searched < mostDays; searched += 1) {
    const open = schemes.map((each) => isBusinessDay(each, day));
    if (open.includes(undefined)) return null;
    if (!open.includes(false)) {
      if (left === 0) return timeIn(scheme.zone, `${day}T23:59:59.999`);
      left -= 1;
      // The money has left the source currency, so only the destination's calendar matters from here on.
      schemes = [scheme];
    }
    day = nextDay(day);
  }
  return null;
}

function isBusinessDay({ business_days, closed }: Scheme, day: string): boolean | undefined {
  const name = weekday.format(new Date(day)).toLowerCase();
  const days = closed[day.slice(0, 4)]?.split(' ');
  return days && business_days.includes(name) && !days.includes(day.slice(5));
}

function nextDay(day: string): string {
  return new Date(Date.parse(day) + 24 * 60 * 60_000).toISOString().slice(0, 10);
}

/** Cached formats, one for each zone of the table: creating a format takes 50 µs. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** Formats a time as YYYY-MM-DD HH:MM:SS in the zone. The Swedish locale has this format. */
function localTime(at: Date, timeZone: string): string {
  const format =
    formats.get(timeZone) ??
    new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' });
  formats.set(timeZone, format);
  return format.format(at);
}

/**
 * Converts a local time of a business day to a point in time. The zone's offset is looked up at the same
 * time read as UTC, at most 14 hours away: clocks change at weekends, so the offset is the same.
 */
export function timeIn(zone: string, time: string): Date {
  const utc = new Date(`${time}Z`);
  const local = Date.parse(`${localTime(utc, zone).replace(' ', 'T')}Z`);
  const wholeSecond = utc.getTime() - utc.getUTCMilliseconds();
  return new Date(utc.getTime() + wholeSecond - local);
}
