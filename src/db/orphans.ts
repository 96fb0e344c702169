import { type Database, longTransaction } from './client.js';

/** A row that names another one which does not exist. */
export type Orphan = {
  /** `table.column` */
  readonly reference: string;
  readonly rowId: string;
  readonly missingId: string;
};

/** More than this is a table that was lost, whose rows are not read one by one. */
const mostListed = 1_000;

/** Orphans among the newest rows of each table whose references no foreign key holds. */
export async function listOrphans(database: Database, limitMs: number): Promise<readonly Orphan[]> {
  return longTransaction(
    database,
    limitMs,
    (sql) => sql<Orphan[]>`select * from orphans limit ${mostListed}`,
  );
}
