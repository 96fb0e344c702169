import { maxValueLength } from './decoded.js';

// Maximum number of columns. An item has at most 58: eight parameters and 50 metadata names.
const maxColumns = 100;

/** A row: its first cells, the number of all its cells, and the line that it starts on. */
export type CsvRow = {
  readonly cells: readonly string[];
  readonly count: number;
  readonly line: number;
};

/** Where the text is not CSV. Columns count from 0, lines from 1. */
export type CsvFault = {
  readonly expected: string;
  readonly column: number;
  readonly line: number;
};

/**
 * Reads CSV (RFC 4180) row by row. Cells are separated by commas. A cell that contains commas, quotes or line
 * breaks is quoted, with each quote doubled. Rows end with LF or CR LF, and blank lines are skipped. Reads
 * every character once, and keeps no cells that the caller does not want.
 */
export class CsvReader {
  private readonly special = /[",\r\n]/g;
  private at = 0;
  private line = 1;

  constructor(readonly text: string) {}

  /** Returns the next row, with at most `maxCells` of its cells, or undefined at the end. */
  readRow(maxCells = maxColumns): CsvRow | CsvFault | undefined {
    while (this.takeLineEnd());
    if (this.at === this.text.length) return undefined;
    const { line } = this;
    const cells: string[] = [];
    for (let column = 0; ; column += 1) {
      // The rest of the row is not read: it could have eight million cells.
      if (column === maxColumns) {
        return { expected: `a row of at most ${maxColumns} columns`, column, line: this.line };
      }
      const startLine = this.line;
      const cell = this.text[this.at] === '"' ? this.readQuoted() : this.readBare();
      if (cell === undefined) {
        return { expected: 'a cell with its closing quote', column, line: startLine };
      }
      if (column < maxCells) cells.push(cell);
      if (this.text[this.at] === ',') this.at += 1;
      else if (this.at === this.text.length || this.takeLineEnd()) {
        return { cells, count: column + 1, line };
      } else {
        const expected = 'quoted as a whole, because it contains quotes or line breaks';
        return { expected, column, line: this.line };
      }
    }
  }

  private takeLineEnd(): boolean {
    const length = this.text.startsWith('\r\n', this.at) ? 2 : 1;
    if (length === 1 && this.text[this.at] !== '\n') return false;
    this.at += length;
    this.line += 1;
    return true;
  }

  private readBare(): string {
    const start = this.at;
    this.special.lastIndex = start;
    // Unlike `exec`, `test` creates no object, which would be one per cell.
    this.at = this.special.test(this.text) ? this.special.lastIndex - 1 : this.text.length;
    return this.text.slice(start, this.at);
  }

  /** Returns the text between quotes, or undefined if the closing quote is missing. */
  private readQuoted(): string | undefined {
    const start = this.at + 1;
    let end = this.text.indexOf('"', start);
    while (end >= 0 && this.text[end + 1] === '"') end = this.text.indexOf('"', end + 2);
    if (end < 0) return undefined;
    const inside = this.text.slice(start, end);
    for (let at = 0; at < inside.length; at += 1) if (inside[at] === '\n') this.line += 1;
    this.at = end + 1;
    // Half of it is too long for a value already: four million quotes would hold up everybody.
    return inside.length > 2 * maxValueLength ? inside : inside.replaceAll('""', '"');
  }
}
