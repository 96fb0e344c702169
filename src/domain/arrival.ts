import calendars from './bankCalendars.json' with { type: 'json' };

/**
 * How a currency is paid, for what is accepted from a day on (00:00 UTC). An edition is never edited:
 * what changes is a new one, so what was said of an older payout stays. `tools/bankCalendars.py` makes
 * the table and names its sources; a day on which banks are open for some hours only is closed.
 */
export type Scheme = {
  readonly from: string;
  readonly scheme: string;
  /** An IANA time zone. */
  readonly zone: string;
  /** HH:MM in the zone: what is accepted then or later belongs to the next business day. */
  readonly cut_off: string;
  /** Business days after that day until the beneficiary's bank has credited it at the latest. */
  readonly settlement_days: number;
  readonly business_days: readonly string[];
  /** By year, the days (MM-DD) among them that are not; a year that is missing is not known yet. */
  readonly closed: Readonly<Record<string, string>>;
};

const table: ReadonlyMap<string, readonly Scheme[]> = new Map(Object.entries(calendars));

const weekday = new Intl.DateTimeFormat('en', { weekday: 'long', timeZone: 'UTC' });

/**
 * How a currency is paid if it is accepted at this moment.
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

/** Longer than banks are closed in any two countries at once; without it a bad table would hang. */
const mostDays = 31;

/**
 * When a payout that is accepted, and so is funded, at this moment has arrived at the latest: at the
 * end of a business day of the destination, to its last millisecond. It starts on the first day that
 * is one in both currencies, for which it is before the destination's cut-off. Null where the calendar
 * of a year is not published: a guess by weekends alone would break the promise at every holiday.
 */
export function estimatedArrival(source: string, destination: string, at: Date): Date | null {
  // Cut-offs are whole minutes, so all moments of a minute have one estimate.
  const asked = `${source} ${destination} ${Math.floor(at.getTime() / 60_000)}`;
  const known = estimates.get(asked);
  if (known !== undefined) return known;
  const estimate = computeArrival(source, destination, at);
  if (estimates.size >= mostEstimates) estimates.clear();
  estimates.set(asked, estimate);
  return estimate;
}

/** A batch asks for its 10,000 payouts within seconds, and to compute one takes 10 µs. */
const estimates = new Map<string, Date | null>();

/** More than the pairs of all currencies, which a list of corridors asks for. */
const mostEstimates = 4_000;

function computeArrival(source: string, destination: string, at: Date): Date | null {
  const scheme = schemeOf(destination, at);
  const [today = '', time = ''] = localTime(at, scheme.zone).split(' ');
  let day = time < scheme.cut_off ? today : nextDay(today);
  let left = scheme.settlement_days;
  let schemes = [scheme, schemeOf(source, at)];
  for (let looked = 0; looked < mostDays; looked += 1) {
    const open = schemes.map((each) => isBusinessDay(each, day));
    if (open.includes(undefined)) return null;
    if (!open.includes(false)) {
      if (left === 0) return timeIn(scheme.zone, `${day}T23:59:59.999`);
      left -= 1;
      // It has left the source by then.
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

/** A format takes 50 µs to make, and there is one for each zone of the table. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** YYYY-MM-DD HH:MM:SS: the Swedish format. */
function localTime(at: Date, timeZone: string): string {
  const format =
    formats.get(timeZone) ??
    new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' });
  formats.set(timeZone, format);
  return format.format(at);
}

/** When clocks in a zone show a time of a business day: they change at weekends, so UTC's has one offset. */
export function timeIn(zone: string, time: string): Date {
  const utc = new Date(`${time}Z`);
  const local = Date.parse(`${localTime(utc, zone).replace(' ', 'T')}Z`);
  const wholeSecond = utc.getTime() - utc.getUTCMilliseconds();
  return new Date(utc.getTime() + wholeSecond - local);
}
