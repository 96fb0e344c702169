import type { Opening } from '../domain/corridor.js';
import { onlyRow, type Sql } from './client.js';

/** A rule that opens or closes a corridor, with the time from which it applies. */
export type OpeningRow = Opening & { readonly id: bigint; readonly validFrom: Date };

/** Returns the rule in force for each currency pair: the last one that has begun. */
export const currentOpenings = async (sql: Sql) => sql<OpeningRow[]>`${lastBegun(sql)}`;

const lastBegun = (sql: Sql) => sql`
  select distinct on (source, destination) * from corridor_openings
   where valid_from <= now() order by source, destination, valid_from desc, id desc`;

/** Returns the rules in force and those to come: a handful, because people enter them. */
export const listOpenings = async (sql: Sql) => sql<OpeningRow[]>`
  (${lastBegun(sql)}) union all select * from corridor_openings where valid_from > now()
   order by valid_from, id`;

/** Opens or closes a corridor from a time on, or from now if `validFrom` is null. */
export const insertOpening = (
  sql: Sql,
  { source, destination, isOpen }: Opening,
  validFrom: Date | null,
) =>
  onlyRow(sql<OpeningRow[]>`
    insert into corridor_openings (source, destination, is_open, valid_from)
    values (${source}, ${destination}, ${isOpen}, coalesce(${validFrom}, now())) returning *`);
