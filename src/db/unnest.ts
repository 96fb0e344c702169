import postgres, { type Fragment } from 'postgres';
import type { Sql } from './client.js';

type Value = string | number | bigint | boolean | object | null | undefined;
type Row = { readonly [property: string]: Value };

/**
 * Rows as a table `t` that a statement reads from: an array a column, so that the statement is the
 * same for any number of rows. The arrays go as text, and the server reads their elements:
 * postgres.js would take the type of the first one for that of all. The names and types of the
 * columns follow as in `create table`; each is a property of every row.
 */
export function unnest(sql: Sql, rows: readonly Row[]) {
  return ([columns = '']: TemplateStringsArray): Fragment => {
    const names: string[] = [];
    const arrays = columns.split(',').map((column, index) => {
      const [name = '', type = ''] = column.trim().split(' ');
      names.push(name);
      const property = postgres.toCamel(name);
      const texts = rows.map((row) => textOf(row, property));
      return sql`${sql.unsafe(index === 0 ? '' : ',')} ${texts}::text[]::${sql.unsafe(type)}[]`;
    });
    return sql`unnest(${arrays}) as t (${sql(names)})`;
  };
}

function textOf(row: Row, property: string): string | null {
  if (!(property in row)) throw new Error(`A row has no ${property}.`);
  const { [property]: value } = row;
  if (value === null || value === undefined) return null;
  if (value instanceof Date) return value.toISOString();
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
