// An item's own parameters and its 50 names of metadata are 57.
const maxColumns = 100;

/** A row: its first cells, how many there are in all, and the line that it begins on. */
export type CsvRow = {
  readonly cells: readonly string[];
  readonly count: number;
  readonly line: number;
};

/** Where the text stops being CSV; the column counts from 0, the line from 1. */
export type CsvFault = {
  readonly expected: string;
  readonly column: number;
  readonly line: number;
};

/**
 * Reads a text as RFC 4180 has it, row by row: cells between commas, in quotes where they have
 * commas, quotes or line breaks in them, with a quote doubled; rows end with LF or CR LF. Blank
 * lines are skipped. Every character is looked at once, and what is not asked for is not kept.
 */
export class CsvReader {
  private readonly text: string;
  private readonly special = /[",\r\n]/g;
  private at = 0;
  private line = 1;

  constructor(text: string) {
    this.text = text;
  }

  /** The next row, of whose cells at most so many are kept, or undefined at the end. */
  readRow(mostCells = maxColumns): CsvRow | CsvFault | undefined {
    while (this.takeLineEnd());
    if (this.at === this.text.length) return undefined;
    const { line } = this;
    const cells: string[] = [];
    for (let column = 0; ; column += 1) {
      // Not read to its end: a row could be eight million cells.
      if (column === maxColumns) {
        return { expected: `a row of at most ${maxColumns} columns`, column, line: this.line };
      }
      const startLine = this.line;
      const cell = this.text[this.at] === '"' ? this.readQuoted() : this.readBare();
      if (cell === undefined) {
        return { expected: 'a cell with its closing quote', column, line: startLine };
      }
      if (column < mostCells) cells.push(cell);
      if (this.text[this.at] === ',') this.at += 1;
      else if (this.at === this.text.length || this.takeLineEnd()) {
        return { cells, count: column + 1, line };
      } else {
        const expected = 'in quotes as a whole if it has quotes or line breaks in it';
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
    // Unlike `exec` this makes no object, of which there would be one a cell.
    this.at = this.special.test(this.text) ? this.special.lastIndex - 1 : this.text.length;
    return this.text.slice(start, this.at);
  }

  /** The text between quotes, or undefined where the closing one is missing. */
  private readQuoted(): string | undefined {
    const start = this.at + 1;
    let end = this.text.indexOf('"', start);
    while (end >= 0 && this.text[end + 1] === '"') end = this.text.indexOf('"', end + 2);
    if (end < 0) return undefined;
    const inside = this.text.slice(start, end);
    for (let feed = inside.indexOf('\n'); feed >= 0; feed = inside.indexOf('\n', feed + 1)) {
      this.line += 1;
    }
    this.at = end + 1;
    return inside.replaceAll('""', '"');
  }
}
