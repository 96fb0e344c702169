import type { JSONValue } from 'postgres';
import type {
  ActorKind,
  OperatorCommand,
  OperatorRequest,
  OperatorResult,
  Signature,
} from '../domain/operator.js';
import { byId, type Sql } from './client.js';
import { newId } from './id.js';

/** A command with its parameters, without its secrets. */
type AuditedCommand = {
  readonly kind: string;
  readonly [parameter: string]: JSONValue | undefined;
};

export type OperatorActionRow<C = OperatorCommand> = Signature & {
  readonly id: string;
  /** The id of what the command is about; the database derives its type from it. */
  readonly subjectId: string;
  readonly actorKind: ActorKind;
  readonly command: C;
  readonly outcome: OperatorResult['outcome'];
  readonly detail: string;
  readonly approves: string | null;
  readonly createdAt: Date;
};

/** Writes one line of the audit log, which is never changed. */
export async function recordAction(
  sql: Sql,
  action: Omit<OperatorActionRow<AuditedCommand>, 'createdAt'>,
): Promise<void> {
  await sql`
    insert into operator_actions
      (id, subject_id, actor_kind, operator, reason, command, outcome, detail, approves)
    values (${action.id}, ${action.subjectId}, ${action.actorKind}, ${action.operator},
      ${action.reason}, ${sql.json(action.command)}, ${action.outcome}, ${action.detail},
      ${action.approves})`;
}

/**
 * The line of a command that an operator has executed directly; it belongs to the
 * transaction of what the command does.
 */
export async function recordCommand(
  sql: Sql,
  signature: Signature,
  subjectId: string,
  command: AuditedCommand,
): Promise<void> {
  const line = { ...signature, subjectId, command, detail: '', approves: null };
  const id = newId('operatorAction');
  await recordAction(sql, { ...line, id, actorKind: 'operator', outcome: 'done' });
}

/** Stores an operator's command for a payout, whose workflow gets its id alone. */
export async function insertRequest(
  sql: Sql,
  payoutId: string,
  { operator, reason, command }: OperatorRequest,
): Promise<string> {
  const id = newId('operatorAction');
  await sql`
    insert into operator_requests (id, payout_id, operator, reason, command)
    values (${id}, ${payoutId}, ${operator}, ${reason}, ${sql.json(command)})`;
  return id;
}

export async function findRequest(
  sql: Sql,
  payoutId: string,
  id: string,
): Promise<OperatorRequest | undefined> {
  const [row] = await sql<OperatorRequest[]>`
    select operator, reason, command from operator_requests
     where id = ${id} and payout_id = ${payoutId}`;
  return row;
}

export const findAction = byId<OperatorActionRow>('operator_actions');

/**
 * A proposal that has not been executed yet. It was made for the case at hand: once the payout
 * has been parked anew, its evidence is stale.
 */
export async function findOpenProposal(
  sql: Sql,
  payoutId: string,
  id: string,
): Promise<OperatorActionRow | undefined> {
  const [row] = await sql<OperatorActionRow[]>`
    select a.* from operator_actions a join payouts p on p.id = a.subject_id
     where a.id = ${id} and a.subject_id = ${payoutId} and a.outcome = 'proposed'
       and (p.attention_at is null or a.created_at >= p.attention_at)
       and not exists (select from operator_actions d where d.approves = a.id and d.outcome = 'done')`;
  return row;
}

export async function listActions(
  sql: Sql,
  payoutId: string,
): Promise<readonly OperatorActionRow[]> {
  return sql<OperatorActionRow[]>`
    select * from operator_actions where subject_id = ${payoutId} order by created_at, id`;
}
