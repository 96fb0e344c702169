import { isUtf8 } from 'node:buffer';
import { type Refusal, refuse } from '../domain/refusal.js';
import { type CsvFault, CsvReader, type CsvRow } from './csvRows.js';
import {
  type Decoded,
  type DecodedObject,
  expectedOfValue,
  itemLines,
  maxDepth,
  maxFields,
  maxProblems,
  paramName,
  refuseParam,
  type SentColumns,
  type SentLines,
} from './decoded.js';
import { type Branch, insert, readName } from './formBody.js';
import type { Steps } from './slices.js';

/** The numbers of the columns by their names; a number among these is a name like others. */
type Columns = Branch<number>;

type Header = SentColumns & { readonly columns: Columns };

/** What a cell ought to have been, or undefined if it is well. */
type CellCheck = (cell: string) => string | undefined;

/** What all rows are read by, and where their problems go. */
type Reading = {
  readonly header: Header;
  readonly expectedOfCell: CellCheck;
  readonly problems: Refusal[];
  /** The line of each item. */
  readonly lines: number[];
};

/**
 * Decodes `text/csv` (RFC 4180) with names in its first row, nested ones in brackets as in
 * `metadata[order]`: every other row is an item of `payouts`. An empty cell is a parameter
 * that was not sent. One pass over the body; what is refused is named with its line.
 */
export function* decodeCsv(body: Buffer): Steps<DecodedObject | readonly Refusal[]> {
  // Where a byte is not UTF-8, Latin-1 has one character a byte, and its cell can be named.
  const isText = isUtf8(body);
  const text = body.toString(isText ? 'utf8' : 'latin1');
  const expectedOfCell: CellCheck = (cell) =>
    isText || isUtf8(Buffer.from(cell, 'latin1')) ? expectedOfValue(cell) : 'text in UTF-8';
  const reader = new CsvReader(text);
  const header = readHeader(reader, expectedOfCell);
  // Under a header that is wrong every row would be, and hide the cause.
  if (!('columns' in header)) return header;
  const problems: Refusal[] = [];
  const lines: number[] = [];
  const payouts = yield* readItems(reader, { header, expectedOfCell, problems, lines });
  if (problems.length > 0) return problems;
  const sent: SentLines = { lines, columns: header };
  return Object.assign(Object.create(null), { payouts, [itemLines]: sent });
}

function readHeader(reader: CsvReader, expectedOfCell: CellCheck): Header | readonly Refusal[] {
  const columns: Columns = { kind: 'object', children: new Map() };
  const row = reader.readRow();
  if (row === undefined) return { names: [], columns, line: 1 };
  if ('expected' in row) return [misread(row, `column ${row.column + 1}`)];
  // What spreadsheets write where the comma is decimal; as a name it would only be unknown.
  const separator = row.count === 1 ? /[;\t]/.exec(row.cells[0] ?? '')?.[0] : undefined;
  if (separator !== undefined) {
    const found = separator === ';' ? 'semicolons' : 'tabs';
    const detail = `The columns are separated by ${found}: use commas.`;
    return [refuse('body_malformed', { detail, line: row.line })];
  }
  const refusals = row.cells.flatMap((name, column) => {
    const expected = expectedOfCell(name) ?? addColumn(columns, name, column);
    return expected === undefined ? [] : [refuseParam(name, expected, row.line)];
  });
  return refusals.length > 0 ? refusals : { names: row.cells, columns, line: row.line };
}

/** Adds a column by its name; answers what was expected instead if it cannot be. */
function addColumn(columns: Columns, name: string, column: number): string | undefined {
  const path = readName(name);
  if (!Array.isArray(path)) return path.expected;
  // An item stands two levels down, in payouts[0].
  if (path.length > maxDepth - 2) return `a name of at most ${maxDepth - 2} levels`;
  if (path.at(-1) === '') return 'a name in the brackets, as in metadata[order]';
  return insert(columns, path, column, []);
}

function* readItems(reader: CsvReader, reading: Reading): Steps<readonly DecodedObject[]> {
  const { header, problems } = reading;
  const items: DecodedObject[] = [];
  let fields = 0;
  while (problems.length < maxProblems) {
    const param = paramName(['payouts', items.length]);
    const row = reader.readRow(header.names.length);
    if (row === undefined) break;
    if ('expected' in row) {
      problems.push(misread(row, paramOfCell(param, header.names[row.column])));
      break;
    }
    const values = checkRow(row, param, reading);
    // What is empty is work as well, though less: 10,000 rows of 100 cells are within the limit.
    fields += Math.max(1, row.count / 10, values);
    if (fields > maxFields) {
      problems.push(refuse('body_malformed', { expected: `at most ${maxFields} values` }));
      break;
    }
    reading.lines.push(row.line);
    items.push(itemOf(header.columns, row.cells) ?? Object.create(null));
    yield;
  }
  return items;
}

/** Refuses what is wrong with a row, and counts its values. */
function checkRow(
  row: CsvRow,
  param: string,
  { header: { names }, expectedOfCell, problems }: Reading,
): number {
  if (row.count !== names.length) {
    const expected = `a row of ${names.length} cells, as the header has`;
    const detail = `The row has ${row.count} cells; the header has ${names.length}.`;
    problems.push({ ...refuseParam(param, expected, row.line), received: `${row.count}`, detail });
  }
  let values = 0;
  for (const [column, cell] of row.cells.entries()) {
    if (cell === '') continue;
    values += 1;
    const expected = expectedOfCell(cell);
    if (expected === undefined || problems.length >= maxProblems) continue;
    problems.push(refuseParam(paramOfCell(param, names[column]), expected, row.line));
  }
  return values;
}

/** The object of the values that a row has under these names; undefined if it has none. */
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

/** `metadata[order]` of `payouts[17]` is `payouts[17][metadata][order]`. */
function paramOfCell(item: string, name = ''): string {
  return item + name.replace(/^[^[]+/, '[$&]');
}

function misread({ expected, line }: CsvFault, param: string): Refusal {
  return refuse('body_malformed', { param, expected, line });
}
