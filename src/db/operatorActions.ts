import type { OperatorCommand, OperatorResult } from '../domain/operator.js';
import type { Sql } from './client.js';
import { newId } from './id.js';

export type OperatorActionRow = {
  readonly id: string;
  readonly payoutId: string;
  readonly operator: string;
  readonly reason: string;
  readonly command: OperatorCommand;
  readonly outcome: OperatorResult['outcome'];
  readonly detail: string;
  readonly approves: string | null;
  readonly createdAt: Date;
};

/** Writes one line of the audit log, which is never changed. */
export async function recordAction(
  sql: Sql,
  action: Omit<OperatorActionRow, 'id' | 'createdAt'>,
): Promise<string> {
  const id = newId('operatorAction');
  await sql`
    insert into operator_actions (id, payout_id, operator, reason, command, outcome, detail, approves)
    values (${id}, ${action.payoutId}, ${action.operator}, ${action.reason},
      ${sql.json(action.command)}, ${action.outcome}, ${action.detail}, ${action.approves})`;
  return id;
}

/** A proposal of a payout that nobody has carried out yet. */
export async function findOpenProposal(
  sql: Sql,
  payoutId: string,
  id: string,
): Promise<OperatorActionRow | undefined> {
  const [row] = await sql<OperatorActionRow[]>`
    select * from operator_actions a
     where id = ${id} and payout_id = ${payoutId} and outcome = 'proposed'
       and not exists (select from operator_actions d where d.approves = a.id and d.outcome = 'done')`;
  return row;
}

export async function listActions(
  sql: Sql,
  payoutId: string,
): Promise<readonly OperatorActionRow[]> {
  return sql<OperatorActionRow[]>`
    select * from operator_actions where payout_id = ${payoutId} order by id`;
}
