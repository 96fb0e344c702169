import { type Database, transaction } from '../db/client.js';
import { storeStatement, unreadDays } from '../db/statements.js';
import type { Rail } from '../rails/rail.js';

/**
 * Brings a rail's statement up to date, from a day on if one is given; a closed day is read once. A day that
 * cannot be read holds up no other, and is why this fails in the end.
 */
export async function readStatements(database: Database, rail: Rail, from?: string): Promise<void> {
  const failures: unknown[] = [];
  for (const date of await unreadDays(database, rail.name, from)) {
    try {
      const statement = { ...(await rail.statement(date)), rail: rail.name, date };
      await transaction(database, (sql) => storeStatement(sql, statement));
    } catch (error) {
      // A bank that is away takes 5 s a day to show it: then no more days are asked for.
      if (failures.push(error) === 5) break;
    }
  }
  if (failures.length > 0) throw failures[0];
}
