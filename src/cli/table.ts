import type { Call } from './usage.js';

/** Line width that every terminal has. */
const columns = 80;

/** Prints a table: its first row is the header, and a column is as wide as its widest cell. */
export function printTable(table: readonly (readonly string[])[]): void {
  const widths = table[0]?.map((_, at) => Math.max(...table.map((row) => row[at]?.length ?? 0)));
  const cells = (row: readonly string[]) => row.map((cell, at) => cell.padEnd(widths?.[at] ?? 0));
  for (const row of table) console.log(cells(row).join('  ').trimEnd());
}

/** What in text of customers or banks could fake lines, reverse other text or control the terminal. */
const unsafe = /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Replaces unsafe characters of a line. */
export const plain = (line: string) => line.replaceAll(unsafe, '?');

/**
 * Prints JSON for scripts. Minor units become strings, because a JSON number would lose digits. Control
 * characters that JSON allows are escaped, because a terminal would obey them.
 */
export function printJson(value: unknown): void {
  const text = (_: string, part: unknown) => (typeof part === 'bigint' ? `${part}` : part);
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  // The line breaks are JSON's own: those of a text are escaped already.
  const safe = (unit: string) => (unit === '\n' ? unit : escaped(unit));
  console.log(JSON.stringify(value, text, 2).replaceAll(unsafe, safe));
}

/**
 * Prints rows as JSON, or for people as one or more lines each; `none` if there are no rows. Prints at most `most`,
 * and says on stderr if there are more.
 */
export function printRows<Row>(
  { isJson, most = Infinity }: Pick<Call, 'isJson'> & { readonly most?: number },
  rows: readonly Row[],
  none: string,
  lineOf: (row: Row) => string,
): void {
  const printed = rows.slice(0, most);
  if (isJson) printJson(printed);
  else if (rows.length === 0) console.log(none);
  else for (const row of printed) console.log(lineOf(row));
  if (printed.length === rows.length) return;
  console.error(`Only the first ${most.toLocaleString('en')} are listed; there are more.`);
}

/** Wraps a text into indented lines that fit a terminal. A word longer than a line stays whole. */
export function wrapped(text: string, indent: string, next = indent): string {
  const lines = [indent];
  for (const word of text.split(/\s+/).map(plain)) {
    const line = lines.at(-1) ?? '';
    const isFirst = line.trim() === '';
    if (!isFirst && line.length + 1 + word.length > columns) lines.push(next + word);
    else lines[lines.length - 1] = isFirst ? line + word : `${line} ${word}`;
  }
  return lines.join('\n');
}
