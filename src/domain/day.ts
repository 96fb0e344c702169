/**
 * Whether a text is a real day, YYYY-MM-DD. `Date` reads 31 February as 3 March, so only real days print
 * unchanged.
 */
export function isDay(text: string): boolean {
  const day = new Date(text);
  return !Number.isNaN(day.getTime()) && day.toISOString().slice(0, 10) === text;
}
