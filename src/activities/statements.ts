import { type Database, transaction } from '../db/client.js';
import { storeStatement, unreadDays } from '../db/statements.js';
import type { Rail } from '../rails/rail.js';

/** Brings a rail's statement up to date, day by day; a closed day is read once. */
export async function readStatements(database: Database, rail: Rail): Promise<void> {
  for (const date of await unreadDays(database, rail.name)) {
    const statement = { ...(await rail.statement(date)), rail: rail.name, date };
    await transaction(database, (sql) => storeStatement(sql, statement));
  }
}
