import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { arrays, bigints, unnest } from '../../src/db/client.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test?.drop());

describe('arrays are sent and received without asking the server for its types', () => {
  it('of any texts, including empty and null ones', async () => {
    const texts = fc.array(fc.option(fc.string({ unit: 'grapheme' })));
    await fc.assert(
      fc.asyncProperty(texts, async (sent) => {
        const elements = sent.map((text) => text?.replaceAll('\0', '') ?? null);
        const [row] = await test.database<
          { received: readonly string[]; json: readonly string[] }[]
        >`
          select ${elements}::text[] as received, to_json(${elements}::text[]) as json`;
        expect(row).toEqual({ received: elements, json: elements });
      }),
      { examples: [[[]], [['NULL', 'null', '', ' ', '"', '\\', '{a,b}', null]]] },
    );
  });

  it('of numbers, including the largest', async () => {
    const large = [9_223_372_036_854_775_807n, null, -1n];
    const [row] = await test.database`
      select to_json(${[1, 2, -3]}::int[]) as ints, to_json(${[0.5, null]}::float8[]) as floats,
             array_to_string(${bigints(large)}::bigint[], ' ', '-') as bigints`;
    expect(row).toEqual({
      ints: [1, 2, -3],
      floats: [0.5, null],
      bigints: '9223372036854775807 - -1',
    });
  });

  it('as the rows of a table, each column in its type', async () => {
    const rows = [
      { id: 'a "b", {c}\\', amountMinor: 9_223_372_036_854_775_807n, data: { x: ['"', null] } },
      { id: '', amountMinor: null, data: null },
    ].map((row, index) => ({ ...row, place: index, rate: '0.10', at: new Date(index), no: null }));
    const found = await test.database`
      select id, amount_minor, data, place, rate, at, no, pg_typeof(no)::text as type
        from ${unnest(test.database, rows)`
          id text, amount_minor bigint, data jsonb, place int, rate numeric, at timestamptz,
          no float8`} order by place`;
    expect([...found]).toEqual(rows.map((row) => ({ ...row, type: 'double precision' })));
    const none = await test.database`select * from ${unnest(test.database, [])`id text`}`;
    expect(none.length).toBe(0);
  });

  it('and a row that lacks a column is rejected', () => {
    const { database } = test;
    expect(() => unnest(database, [{ id: 'a' }, {}])`id text`).toThrow('A row has no id.');
  });

  it('where the server tells the type of a parameter', async () => {
    const [row] = await test.database`
      select count(*)::int as count from pg_type where typname::text = any (${['text', 'int4']})`;
    expect(row).toEqual({ count: 2 });
  });

  it('and no column of the schema is an array of another type', async () => {
    const columns = await test.database<{ name: string; type: number }[]>`
      select format('%s.%s', c.relname, a.attname) as name, a.atttypid::int as type
        from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
       where c.relnamespace = 'public'::regnamespace and a.attnum > 0 and t.typcategory = 'A'
         and c.relkind in ('r', 'v', 'p') order by 1`;
    expect(columns.map(({ name }) => name)).toEqual([
      'api_keys.allowed',
      'api_keys.scopes',
      'delivery_groups.types',
      // Only read as rows of ledger_postings.
      'ledger_entries.amounts_minor',
      'ledger_entries.from_ids',
      'ledger_entries.to_ids',
      // Only compared inside the database.
      'payouts.applied_facts',
      'webhook_endpoints.events',
    ]);
    // An array of numbers would arrive as strings.
    const others = columns.filter(({ type }) => type !== arrays.to);
    expect(others.filter(({ name }) => !/^ledger_entries|applied_facts$/.test(name))).toEqual([]);
  });
});
