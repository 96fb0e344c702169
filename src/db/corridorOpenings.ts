import type { Opening } from '../domain/corridor.js';
import { exactlyOne, type Sql } from './client.js';

/** A rule with when it begins. */
export type OpeningRow = Opening & { readonly id: bigint; readonly validFrom: Date };

/** The last rule of each pair that holds now. */
export async function currentOpenings(sql: Sql): Promise<readonly OpeningRow[]> {
  const rows = await listOpenings(sql);
  return rows.filter(({ hasBegun }) => hasBegun);
}

/** The last rule of each corridor that holds now, and those to come: a handful, made by people. */
export async function listOpenings(
  sql: Sql,
): Promise<readonly (OpeningRow & { readonly hasBegun: boolean })[]> {
  return sql<(OpeningRow & { hasBegun: boolean })[]>`
    select * from (
      select distinct on (source, destination, case when valid_from > now() then id end)
             *, valid_from <= now() as has_begun
        from corridor_openings
       order by source, destination, case when valid_from > now() then id end,
             valid_from desc, id desc) o
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
