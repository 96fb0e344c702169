import type { Sql } from './client.js';

/** A row that refers to a row that does not exist. */
export type Orphan = {
  /** `table.column` */
  readonly reference: string;
  readonly rowId: string;
  readonly missingId: string;
};

/** Maximum number of orphans listed. More mean that a whole table was lost, and nobody reads them singly. */
const mostListed = 1_000;

/** Returns orphans among the newest rows of each table that has references without a foreign key. */
export const listOrphans = (sql: Sql) => sql<Orphan[]>`select * from orphans limit ${mostListed}`;
