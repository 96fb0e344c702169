import { isUtf8 } from 'node:buffer';
import { type Refusal, refuse } from '../domain/refusal.js';
import { type CsvFault, CsvReader, type CsvRow } from './csvRows.js';
import {
  type Decoded,
  type DecodedObject,
  type Decoding,
  expectedOfValue,
  itemLines,
  maxDepth,
  maxFields,
  maxProblems,
  paramInside,
  paramName,
  refuseParam,
  type SentColumns,
  type SentLines,
  tooManyValues,
} from './decoded.js';
import { type Branch, insert, readName } from './formBody.js';
import type { Steps } from './slices.js';

/** The column numbers by column name. A number in a name does not mean an index. */
type Columns = Branch<number>;

type Header = SentColumns & { readonly columns: Columns };

/** Returns what a cell should have been, or undefined if it is valid. */
type CellCheck = (cell: string) => string | undefined;

/**
 * Decodes `text/csv` (RFC 4180). The first row has the parameter names, nested ones in brackets as in
 * `metadata[order]`; every other row is an item of `payouts`. An empty cell is a parameter that was not sent.
 * Reads the body in one pass. Every refusal names its line.
 */
export function* decodeCsv(body: Buffer): Steps<Decoding> {
  // If any byte is not UTF-8, read as Latin-1, with one character per byte, so that the cell can be named.
  const isText = isUtf8(body);
  const reader = new CsvReader(body.toString(isText ? 'utf8' : 'latin1'));
  const expectedOfCell: CellCheck = (cell) =>
    isText || isUtf8(Buffer.from(cell, 'latin1')) ? expectedOfValue(cell) : 'text in UTF-8';
  const header = readHeader(reader, expectedOfCell);
  // With a wrong header every row would be refused, which would hide the cause.
  if (!('columns' in header)) return header;
  const problems: Refusal[] = [];
  const payouts: DecodedObject[] = [];
  const lines: number[] = [];
  let fields = 0;
  while (problems.length < maxProblems) {
    const param = paramName(['payouts', payouts.length]);
    const row = reader.readRow(header.names.length);
    if (row === undefined) break;
    if ('expected' in row) {
      problems.push(misread(row, paramInside(param, header.names[row.column])));
      break;
    }
    problems.push(...problemsOfRow(row, param, header.names, expectedOfCell));
    const values = row.cells.filter((cell) => cell !== '').length;
    // Empty cells cost work too, though less: 10,000 rows of 100 cells are within the limit.
    fields += Math.max(1, row.count / 10, values);
    if (fields > maxFields) {
      problems.push(tooManyValues());
      break;
    }
    lines.push(row.line);
    payouts.push(itemOf(header.columns, row.cells) ?? Object.create(null));
    yield;
  }
  if (problems.length > 0) return problems.slice(0, maxProblems);
  const sent: SentLines = { lines, columns: header };
  return Object.assign(Object.create(null), { payouts, [itemLines]: sent });
}

function readHeader(reader: CsvReader, expectedOfCell: CellCheck): Header | readonly Refusal[] {
  const columns: Columns = { kind: 'object', children: new Map() };
  const row = reader.readRow();
  if (row === undefined) return { names: [], columns, line: 1 };
  // Spreadsheets separate by semicolons where the comma is the decimal mark. Without this check the whole
  // header would be refused as an unknown name.
  const separator = /^[\r\n]*[^,;\t\r\n]*([;\t])[^,\r\n]*(?:[\r\n]|$)/.exec(reader.text)?.[1];
  if (separator !== undefined) {
    const found = separator === ';' ? 'semicolons' : 'tabs';
    const detail = `The columns are separated by ${found}: use commas.`;
    return [refuse('body_malformed', { detail, line: row.line })];
  }
  if ('expected' in row) return [misread(row, `column ${row.column + 1}`)];
  const refusals = row.cells.flatMap((name, column) => {
    const expected = expectedOfCell(name) ?? addColumn(columns, name, column);
    const param = name || `column ${column + 1}`;
    return expected === undefined ? [] : [refuseParam(param, expected, row.line)];
  });
  return refusals.length > 0 ? refusals : { names: row.cells, columns, line: row.line };
}

/** Adds a column by its name. If that is impossible, returns what was expected instead. */
function addColumn(columns: Columns, name: string, column: number): string | undefined {
  const path = readName(name);
  if (!Array.isArray(path)) return path.expected;
  // An item is two levels deep, in payouts[0].
  if (path.length > maxDepth - 2) return `a name of at most ${maxDepth - 2} levels`;
  if (path.at(-1) === '') return 'a name in the brackets, as in metadata[order]';
  return insert(columns, path, column, []);
}

/** Refuses a row of the wrong length, and each of its cells that is not valid. */
function problemsOfRow(
  row: CsvRow,
  param: string,
  names: readonly string[],
  expectedOfCell: CellCheck,
): readonly Refusal[] {
  const problems: Refusal[] = [];
  if (row.count !== names.length) {
    const expected = `a row of ${names.length} cells, as the header has`;
    const detail = `The row has ${row.count} cells; the header has ${names.length}.`;
    problems.push({ ...refuseParam(param, expected, row.line), received: `${row.count}`, detail });
  }
  for (const [column, cell] of row.cells.entries()) {
    const expected = cell === '' ? undefined : expectedOfCell(cell);
    if (expected === undefined) continue;
    problems.push(refuseParam(paramInside(param, names[column]), expected, row.line));
  }
  return problems;
}

/** Builds the object of a row's values under these names, or returns undefined if the row has none. */
function itemOf(columns: Columns, cells: readonly string[]): DecodedObject | undefined {
  const item: Record<string, Decoded> = Object.create(null);
  let isEmpty = true;
  for (const [name, column] of columns.children) {
    const value = typeof column === 'number' ? cells[column] : itemOf(column, cells);
    if (value === undefined || value === '') continue;
    item[name] = value;
    isEmpty = false;
  }
  return isEmpty ? undefined : item;
}

function misread({ expected, line }: CsvFault, param: string): Refusal {
  return refuse('body_malformed', { param, expected, line });
}
