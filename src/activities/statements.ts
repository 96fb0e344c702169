import { type Database, transaction } from '../db/client.js';
import { storeStatement, unreadDays } from '../db/statements.js';
import type { Rail } from '../rails/rail.js';
import { throwForeign } from './failure.js';

/**
 * Reads a rail's statements that are not stored as closed yet: from a given day on, or the oldest and the
 * newest in turn, so that old days that can never be read do not keep it from new ones. A day that cannot be
 * read does not hold up the others; its error is thrown at the end.
 */
export async function readStatements(database: Database, rail: Rail, from?: string): Promise<void> {
  const failures: unknown[] = [];
  const days = await unreadDays(database, rail.name, from);
  const inTurn = days.flatMap((_, n) => days.at(n % 2 === 0 ? n / 2 : -(n + 1) / 2) ?? []);
  for (const date of from === undefined ? inTurn : days) {
    try {
      const read = await rail.statement(date).catch(throwForeign);
      const statement = { ...read, rail: rail.name, date };
      await transaction(database, (sql) => storeStatement(sql, statement));
    } catch (error) {
      // An unreachable bank takes 5 s per day to time out: stop after five failures.
      if (failures.push(error) === 5) break;
    }
  }
  if (failures.length > 0) throw failures[0];
}
