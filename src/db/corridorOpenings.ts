import type { Opening } from '../domain/corridor.js';
import { exactlyOne, type Sql } from './client.js';

/** A rule with when it begins. */
export type OpeningRow = Opening & { readonly id: bigint; readonly validFrom: Date };

/** The last rule of each pair that holds now. */
export async function currentOpenings(sql: Sql): Promise<readonly OpeningRow[]> {
  return sql<OpeningRow[]>`${lastBegun(sql)}`;
}

const lastBegun = (sql: Sql) => sql`
  select distinct on (source, destination) * from corridor_openings
   where valid_from <= now() order by source, destination, valid_from desc, id desc`;

/** Those, and the rules to come: a handful, made by people. */
export async function listOpenings(sql: Sql): Promise<readonly OpeningRow[]> {
  return sql<OpeningRow[]>`
    (${lastBegun(sql)}) union all select * from corridor_openings where valid_from > now()
     order by valid_from, id`;
}

/** Opens or closes corridors from a time on, or from now. */
export async function insertOpening(
  sql: Sql,
  { source, destination, isOpen }: Opening,
  validFrom: Date | null,
): Promise<OpeningRow> {
  const [row] = await sql<OpeningRow[]>`
    insert into corridor_openings (source, destination, is_open, valid_from)
    values (${source}, ${destination}, ${isOpen}, coalesce(${validFrom}, now())) returning *`;
  return exactlyOne(row);
}
