import type { OperatorCommand, OperatorResult } from '../domain/operator.js';
import type { Sql } from './client.js';

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
  action: Omit<OperatorActionRow, 'createdAt'>,
): Promise<void> {
  await sql`
    insert into operator_actions (id, payout_id, operator, reason, command, outcome, detail, approves)
    values (${action.id}, ${action.payoutId}, ${action.operator}, ${action.reason},
      ${sql.json(action.command)}, ${action.outcome}, ${action.detail}, ${action.approves})`;
}

export async function findAction(sql: Sql, id: string): Promise<OperatorActionRow | undefined> {
  const [row] = await sql<OperatorActionRow[]>`select * from operator_actions where id = ${id}`;
  return row;
}

/**
 * A proposal that nobody has carried out yet. It was made for the case at hand: once the payout
 * has been parked anew, its evidence is stale.
 */
export async function findOpenProposal(
  sql: Sql,
  payoutId: string,
  id: string,
): Promise<OperatorActionRow | undefined> {
  const [row] = await sql<OperatorActionRow[]>`
    select a.* from operator_actions a join payouts p on p.id = a.payout_id
     where a.id = ${id} and a.payout_id = ${payoutId} and a.outcome = 'proposed'
       and a.created_at >= p.attention_at
       and not exists (select from operator_actions d where d.approves = a.id and d.outcome = 'done')`;
  return row;
}

export async function listActions(
  sql: Sql,
  payoutId: string,
): Promise<readonly OperatorActionRow[]> {
  return sql<OperatorActionRow[]>`
    select * from operator_actions where payout_id = ${payoutId} order by created_at, id`;
}
