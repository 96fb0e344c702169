import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CsvReader } from '../../src/api/csvRows.js';
import { formatOf, isUndecoded } from '../../src/api/decode.js';
import {
  type DecodedObject,
  flatten,
  maxBodyBytes,
  maxFields,
  maxProblems,
  maxValueLength,
} from '../../src/api/decoded.js';
import { type Refusal, sentenceOf } from '../../src/domain/refusal.js';
import { decodeBody } from '../fixtures/decodeBody.js';

type Result = DecodedObject | readonly Refusal[];

const ndjson = (body: string | Buffer) =>
  decodeBody(Buffer.from(body), 'application/x-ndjson', true);
const csv = (body: string | Buffer) => decodeBody(Buffer.from(body), 'text/csv', true);

function pairsOf(result: Result): unknown {
  return isUndecoded(result) ? result : flatten(result);
}

/** The refusals as "code param: line", or the decoded value if there are none. */
function refused(result: Result): unknown {
  if (!isUndecoded(result)) return result;
  return result.map(
    ({ code, param, line }) => `${code} ${param}${line === undefined ? '' : `: Line ${line}`}`,
  );
}

describe('an NDJSON body', () => {
  it('has one item per line, ended by LF or CR LF, and may have blank lines', () => {
    const body = '{"amount":1}\r\n\n \t\r\n{"metadata":{"a b":"ü"},"n":null}';
    expect(pairsOf(ndjson(body))).toEqual([
      ['payouts[0][amount]', '1'],
      ['payouts[1][metadata][a b]', 'ü'],
      ['payouts[1][n]', ''],
    ]);
  });

  it('without an item is an empty list', () => {
    expect(pairsOf(ndjson('\n\n'))).toEqual([]);
  });

  it('names every line that is not a JSON object, and the invalid parameters of the others', () => {
    const body = '{"a":1}\n\n{"a":1\n[1]\n{"a":1} {"a":2}\n{"a":1,"a":2}\n{"a":"\\u0000"}\n"x"\n';
    expect(refused(ndjson(body))).toEqual([
      'body_malformed payouts[1]: Line 3',
      'body_malformed payouts[2]: Line 4',
      'body_malformed payouts[3]: Line 5',
      'parameter_invalid payouts[4][a]: Line 6',
      'parameter_invalid payouts[5][a]: Line 7',
      'body_malformed payouts[6]: Line 8',
    ]);
    expect(ndjson('{}\n{"a":1 "b":2}')).toMatchObject([
      { expected: "JSON with ',' or '}' at column 8" },
    ]);
  });

  it.each([
    ['__proto__', '{"__proto__":{"x":1}}', '[__proto__]'],
    ['a nested constructor', '{"metadata":{"constructor":1}}', '[metadata][constructor]'],
    ['a bracket in a name', '{"a[b]":1}', '[a[b]]'],
    ['an empty name', '{"":1}', '[]'],
    ['half a surrogate pair', '{"a":"\\ud800"}', '[a]'],
    ['a huge number', `{"a":${'9'.repeat(41)}}`, '[a]'],
  ])('refuses by name: %s', (_, line, param) => {
    expect(refused(ndjson(`{}\n${line}\n`))).toEqual([
      `parameter_invalid payouts[1]${param}: Line 2`,
    ]);
  });

  it('refuses the lines whose bytes are not UTF-8', () => {
    const body = Buffer.from('{"a":"ü"}\n{"a":"?"}\n{"a":"ü"}\n');
    body[body.indexOf('?')] = 0xff;
    expect(refused(ndjson(body))).toEqual(['body_malformed payouts[1]: Line 2']);
  });
});

describe('a CSV body', () => {
  it('has parameter names in its first row, and the values of one item in each other row', () => {
    const body =
      '\ufeffamount,metadata[order],"metadata[a ""b"""\r\n1,o-1,\r\n\r\n2,,"a ""quoted"", text\r\n of 2 lines"\n,,';
    expect(refused(csv(body))).toEqual(['parameter_invalid metadata[a "b": Line 1']);
    expect(pairsOf(csv(body.replace('"""\r', '""]"\r')))).toEqual([
      ['payouts[0][amount]', '1'],
      ['payouts[0][metadata][order]', 'o-1'],
      ['payouts[1][amount]', '2'],
      ['payouts[1][metadata][a "b"]', 'a "quoted", text\r\n of 2 lines'],
    ]);
    expect(csv(body.replace('"""\r', '""]"\r'))).toMatchObject({ payouts: { length: 3 } });
  });

  it('with only a header, or without any bytes, is an empty list', () => {
    expect(csv('amount,reference\n')).toMatchObject({ payouts: [] });
    expect(csv('\ufeff')).toMatchObject({ payouts: [] });
  });

  it.each([
    ['a name twice', 'a,b,a', 'a'],
    ['a value and an object', 'a,a[b]', 'a[b]'],
    ['an object and a value', 'a[b],a', 'a'],
    ['no name', 'a,', 'column 2'],
    ['a list', 'a[]', 'a[]'],
    ['too many levels', 'a[b][c][d][e][f][g]', 'a[b][c][d][e][f][g]'],
    ['__proto__', '__proto__', '__proto__'],
    ['a nested prototype', 'metadata[prototype]', 'metadata[prototype]'],
    ['brackets not in pairs', 'metadata[a', 'metadata[a'],
    ['U+0000', 'a\0', 'a\0'],
  ])('refuses a header with %s', (_, header, param) => {
    expect(refused(csv(`${header}\n1,2,3\n`))).toEqual([`parameter_invalid ${param}: Line 1`]);
  });

  it.each([
    ['semicolons', 'amount;reference'],
    ['tabs', 'amount\treference'],
    ['semicolons', '"amount";"reference"'],
  ])('refuses columns separated by %s with a single error', (separators, header) => {
    const result = csv(`\n${header}\n1;2\n`);
    expect(isUndecoded(result) && result.map(sentenceOf)).toEqual([
      `Line 2: The columns are separated by ${separators}: use commas.`,
    ]);
  });

  it('refuses rows with more or fewer cells than the header', () => {
    const result = csv('a,b\n1\n1,2\n"1\n2",2,3\n1,2,\n');
    expect(refused(result)).toEqual([
      'parameter_invalid payouts[0]: Line 2',
      'parameter_invalid payouts[2]: Line 4',
      'parameter_invalid payouts[3]: Line 6',
    ]);
    expect(result).toMatchObject([
      { expected: expect.stringContaining('2'), received: '1' },
      { received: '3' },
      { received: '3' },
    ]);
  });

  it.each([
    ['text after a closing quote', 'a,b\n1,2\n"1\n1"x,2', 'payouts[1][a]: Line 4'],
    ['a quote in a bare cell', 'a,b\n1,x"2"', 'payouts[0][b]: Line 2'],
    ['a quote that is not closed', 'a,m[x]\n1,"2\n3,4\n', 'payouts[0][m][x]: Line 2'],
    ['a quote left open by a doubled one', 'a\n"x""', 'payouts[0][a]: Line 2'],
    ['CR alone', 'a\n1\r2', 'payouts[0][a]: Line 2'],
    ['a broken header', 'a,"b\n1,2', 'column 2: Line 1'],
    ['a fault after the last column', 'a\n1,"x', 'payouts[0]: Line 2'],
  ])('reports where it stops being valid CSV: %s', (_, body, place) => {
    expect(refused(csv(body))).toEqual([`body_malformed ${place}`]);
  });

  it('names the cells that are not valid text', () => {
    const body = Buffer.from('a,m[x]\nü,\0\n1,?\n');
    body[body.indexOf('?')] = 0xff;
    expect(refused(csv(body))).toEqual([
      'parameter_invalid payouts[0][m][x]: Line 2',
      'parameter_invalid payouts[1][m][x]: Line 3',
    ]);
    expect(refused(csv(Buffer.from([0xff, 0x0a, 0x31])))).toEqual([
      'parameter_invalid \u00ff: Line 1',
    ]);
  });
});

describe('both NDJSON and CSV', () => {
  it('name as many problems as a response lists', () => {
    expect(refused(ndjson('x\n'.repeat(maxProblems + 1)))).toHaveLength(maxProblems);
    expect(refused(csv(`a,b\n${'1\n'.repeat(maxProblems + 1)}`))).toHaveLength(maxProblems);
    const wide = `${Array.from({ length: 99 }, (_, i) => `n${i}`).join(',')}\n`;
    const bad = `${Array.from({ length: 99 }, () => '\0').join(',')}\n`;
    expect(refused(csv(wide + bad.repeat(3)))).toHaveLength(maxProblems);
  });

  it('enforce the caps on size', () => {
    const long = 'v'.repeat(maxValueLength);
    expect(isUndecoded(csv(`a\n${long}`))).toBe(false);
    expect(refused(csv(`a\n${long}v`))).toEqual(['parameter_invalid payouts[0][a]: Line 2']);
    expect(isUndecoded(csv(`a\n${'1\n'.repeat(maxFields)}`))).toBe(false);
    expect(csv(`a\n${'1\n'.repeat(maxFields + 1)}`)).toMatchObject([{ code: 'body_too_large' }]);
    expect(csv(`a,b\n${',\n'.repeat(maxFields + 1)}`)).toMatchObject([{ code: 'body_too_large' }]);
    // Empty cells count too, ten of them like one value.
    const names = Array.from({ length: 100 }, (_, i) => `n${i}`).join(',');
    const empty = `${','.repeat(99)}\n`;
    expect(isUndecoded(csv(`${names}\n${empty.repeat(maxFields / 10)}`))).toBe(false);
    expect(csv(`${names}\n${empty.repeat(maxFields / 10 + 1)}`)).toMatchObject([
      { code: 'body_too_large' },
    ]);
    expect(isUndecoded(ndjson('{"a":1}\n'.repeat(maxFields)))).toBe(false);
    expect(ndjson('{"a":1}\n'.repeat(maxFields + 1))).toMatchObject([{ code: 'body_too_large' }]);
    // No line is at fault, so none is named.
    const tooMany = { refused: true, code: 'body_too_large', expected: 'at most 250,000 values' };
    expect(ndjson('{}\n'.repeat(maxFields + 9))).toEqual([tooMany]);
  });

  it('have room for the longest batch with 17 metadata keys for each payout', () => {
    const keys = Array.from({ length: 17 }, (_, i) => `key_${i}`);
    const names = ['beneficiary', 'source_currency', 'destination_currency', 'amount', 'reference'];
    const columns = [...names, ...keys.map((key) => `metadata[${key}]`)];
    const row = `${columns.map(() => 'x').join(',')}\n`;
    expect(isUndecoded(csv(`${columns.join(',')}\n${row.repeat(10_000)}`))).toBe(false);
    const metadata = Object.fromEntries(keys.map((key) => [key, 'x']));
    const item = { ...Object.fromEntries(names.map((name) => [name, 'x'])), metadata };
    expect(isUndecoded(ndjson(`${JSON.stringify(item)}\n`.repeat(10_000)))).toBe(false);
  });

  it('withstand bodies made to exhaust the stack, the memory or the CPU', () => {
    const size = maxBodyBytes - 8;
    expect(ndjson('\n'.repeat(size))).toMatchObject({ payouts: [] });
    expect(refused(ndjson('['.repeat(size)))).toEqual(['body_malformed payouts[0]: Line 1']);
    expect(csv('\r\n'.repeat(size / 2))).toMatchObject({ payouts: [] });
    expect(csv(`a\n${'\n'.repeat(size)}`)).toMatchObject({ payouts: [] });
    expect(csv(','.repeat(size))).toMatchObject([{ expected: 'a row of at most 100 columns' }]);
    expect(csv(`a\n1\n${','.repeat(size)}`)).toMatchObject([
      { param: 'payouts[1]', expected: 'a row of at most 100 columns', line: 3 },
    ]);
    expect(refused(csv(`a\n${'"'.repeat(size)}`))).toEqual([
      'parameter_invalid payouts[0][a]: Line 2',
    ]);
    expect(refused(csv(`a\n"${'x'.repeat(size)}`))).toEqual([
      'body_malformed payouts[0][a]: Line 2',
    ]);
  });

  // Four million quotes would hold up everybody.
  it('leave the quotes of a cell doubled when it is too long for a value anyway', () => {
    const cellOf = (quotes: number) => {
      const row = new CsvReader(`"${'""'.repeat(quotes)}"`).readRow();
      return row !== undefined && 'cells' in row ? row.cells[0]?.length : undefined;
    };
    expect(cellOf(maxValueLength)).toBe(maxValueLength);
    expect(cellOf(maxValueLength + 1)).toBe(2 * maxValueLength + 2);
    const size = maxBodyBytes - 8;
    expect(refused(csv(`a\n"${'"'.repeat(size)}"`))).toEqual([
      'parameter_invalid payouts[0][a]: Line 2',
    ]);
  });
});

describe('a list of items in all four formats', () => {
  // Neither a form nor CSV can express an empty text, which is a missing cell, nor an empty list or
  // object. A form treats a numeric name as an index.
  const name = fc
    .string({ unit: 'binary', minLength: 1, maxLength: 6 })
    .filter((text) => !/[[\]\0;\t]|^\d+$|^\ufeff|^(__proto__|constructor|prototype)$/.test(text));
  const value = fc
    .oneof(
      fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }),
      fc.string({ unit: fc.constantFrom('"', ',', '\r', '\n', ' ', 'a'), minLength: 1 }),
    )
    .filter((text) => !text.includes('\0'));
  type Item = Readonly<Record<string, string | Readonly<Record<string, string>>>>;
  const item: fc.Arbitrary<Item> = fc.dictionary(
    name,
    fc.oneof(value, fc.dictionary(name, value, { minKeys: 1, maxKeys: 3 })),
    { minKeys: 1, maxKeys: 4 },
  );
  // A name is either a value in every item or an object in every item, like the columns of a CSV.
  const items = fc
    .array(item, { minLength: 1, maxLength: 5 })
    .filter((list) => kinds(list).every(([, each]) => each.size === 1));

  function kinds(list: readonly Item[]): readonly (readonly [string, Set<string>])[] {
    const found = new Map<string, Set<string>>();
    for (const [key, each] of list.flatMap((one) => Object.entries(one))) {
      found.set(key, (found.get(key) ?? new Set()).add(typeof each));
    }
    return [...found];
  }

  const cellsOf = (one: Item): [string, string][] =>
    Object.entries(one).flatMap(([key, each]): [string, string][] =>
      typeof each === 'string'
        ? [[key, each]]
        : Object.entries(each).map(([inner, text]) => [`${key}[${inner}]`, text]),
    );
  const bracketed = (column: string) => `[${column.replace(/\[|$/, (at) => (at ? '][' : ']'))}`;
  const quoted = (cell: string, always: boolean) =>
    always || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;

  function formOf(list: readonly Item[]): string {
    return list
      .flatMap((one, index) =>
        cellsOf(one).map(([column, text]) =>
          [`payouts[${index}]${bracketed(column)}`, text].map(encodeURIComponent).join('='),
        ),
      )
      .join('&');
  }

  function csvOf(list: readonly Item[], quotesAll: boolean, lineEnd: string): string {
    const columns = [...new Set(list.flatMap((one) => cellsOf(one).map(([column]) => column)))];
    const rows = list.map((one) => {
      const cells = new Map(cellsOf(one));
      return columns.map((column) => cells.get(column) ?? '');
    });
    return [columns, ...rows]
      .map((row) => row.map((cell) => quoted(cell, quotesAll)).join(','))
      .join(lineEnd);
  }

  it('decodes to the same parameters', () => {
    fc.assert(
      fc.property(items, fc.boolean(), fc.constantFrom('\n', '\r\n'), (list, quotes, lineEnd) => {
        const json = decodeBody(
          Buffer.from(JSON.stringify({ payouts: list })),
          'application/json',
          true,
        );
        const form = decodeBody(
          Buffer.from(formOf(list)),
          'application/x-www-form-urlencoded',
          true,
        );
        expect(isUndecoded(json)).toBe(false);
        const wanted = pairsOf(json);
        expect(pairsOf(form)).toEqual(wanted);
        expect(pairsOf(ndjson(list.map((one) => JSON.stringify(one)).join(lineEnd)))).toEqual(
          wanted,
        );
        expect(pairsOf(csv(csvOf(list, quotes, lineEnd)))).toEqual(wanted);
        expect(pairsOf(csv(`\ufeff${csvOf(list, quotes, lineEnd)}${lineEnd}`))).toEqual(wanted);
      }),
      { numRuns: 500 },
    );
  });
});

describe('the content type', () => {
  it.each([
    ['application/x-ndjson', 'decodeNdjson'],
    ['application/jsonl; charset=utf-8', 'decodeNdjson'],
    ['Text/CSV; header=present', 'decodeCsv'],
  ])('%s is read by %s', (contentType, decoder) => {
    expect(formatOf(contentType)?.decode.name).toBe(decoder);
  });

  it('of lines is refused on routes that do not accept it, naming the accepted types', () => {
    for (const contentType of ['application/x-ndjson', 'application/jsonl', 'text/csv']) {
      expect(decodeBody(Buffer.from('{}'), contentType)).toMatchObject([
        {
          code: 'content_type_unsupported',
          expected: 'application/x-www-form-urlencoded or application/json, encoded as UTF-8',
        },
      ]);
    }
    expect(decodeBody(Buffer.from('{}'), 'text/plain', true)).toMatchObject([
      {
        expected:
          'application/x-www-form-urlencoded, application/json, application/x-ndjson, application/jsonl or text/csv, encoded as UTF-8',
      },
    ]);
  });
});
