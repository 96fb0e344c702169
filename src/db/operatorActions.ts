import type { JSONValue } from 'postgres';
import type {
  ActorKind,
  OperatorCommand,
  OperatorRequest,
  OperatorResult,
  Signature,
} from '../domain/operator.js';
import { byId, exactlyOne, firstRow, mostRead, type Sql, when } from './client.js';
import { newId } from './id.js';

/** A command with its parameters but without secrets. */
type AuditedCommand = {
  readonly kind: string;
  readonly [parameter: string]: JSONValue | undefined;
};

export type OperatorActionRow<C = OperatorCommand> = Omit<OperatorRequest, 'command'> &
  Pick<OperatorResult, 'outcome' | 'detail'> & {
    readonly id: string;
    /** ID of the command's subject. The database derives the subject's type from it. */
    readonly subjectId: string;
    readonly actorKind: ActorKind;
    readonly command: C;
    readonly approves: string | null;
    readonly createdAt: Date;
  };

/** Appends an entry to the audit log. Entries never change. */
export const recordAction = async (
  sql: Sql,
  action: Omit<OperatorActionRow<AuditedCommand>, 'createdAt'>,
) => sql`
  insert into operator_actions
    (id, subject_id, actor_kind, operator, reason, command, outcome, detail, approves)
  values (${action.id}, ${action.subjectId}, ${action.actorKind}, ${action.operator},
    ${action.reason}, ${sql.json(action.command)}, ${action.outcome}, ${action.detail},
    ${action.approves})`;

/**
 * Adds the audit entry of a command that an operator executes directly. Call it in the transaction of the
 * command's effects. Returns the name of the operator, whose key the database checks.
 */
export async function recordCommand(
  sql: Sql,
  { operatorKey, reason }: Signature,
  subjectId: string,
  command: AuditedCommand,
): Promise<string> {
  const [row] = await sql<{ operator: string }[]>`
    select record_command(${operatorKey}, ${newId('operatorAction')}, ${subjectId}, ${reason},
      ${sql.json(command)}) as operator`;
  return exactlyOne(row).operator;
}

/**
 * Stores an operator's command for a payout and returns its ID, which is all that the payout's workflow
 * receives. A payout in a batch gets its own workflow for this.
 */
export async function insertRequest(
  sql: Sql,
  payoutId: string,
  { operatorKey, reason }: Signature,
  command: OperatorCommand,
): Promise<string> {
  const id = newId('operatorAction');
  await sql`
    select record_request(${operatorKey}, ${id}, ${payoutId}, ${reason}, ${sql.json(command)})`;
  return id;
}

/** Finds a request that may be executed now: made within an hour, by an operator who still may make it. */
export const findRequest = (sql: Sql, payoutId: string, id: string) =>
  firstRow(sql<OperatorRequest[]>`
    select operator, reason, command from standing_request(${id}, ${payoutId})`);

export const findAction = byId<OperatorActionRow>('operator_actions');

/**
 * Returns proposals for these payouts that are not executed yet, by operators who still may make them.
 * Excludes proposals from before a payout was last parked, whose evidence is stale, and those for a case
 * that has ended. Corrections are always included, because they are evaluated against the ledger.
 */
export const openProposals = async (sql: Sql, payoutIds: readonly string[]) => sql<
  OperatorActionRow[]
>`
  select a.* from operator_actions a join payouts p on p.id = a.subject_id
    join operators o on o.name = a.operator and o.revoked_at is null and o.role >= role_for(a.command)
   where a.subject_id = any (${[...payoutIds]}::text[]) and a.outcome = 'proposed'
     and (a.created_at >= p.attention_at or a.command ->> 'kind' = 'correct')
     and not exists (select from operator_actions d where d.approves = a.id and d.outcome = 'done')
   order by a.created_at, a.id`;

export const listActions = async (sql: Sql, payoutId: string) => sql<OperatorActionRow[]>`
  select * from operator_actions where subject_id = ${payoutId} order by created_at, id`;

/** An entry of the audit log, with the operator whose proposal it executed. */
export type AuditRow = OperatorActionRow<AuditedCommand> & { readonly proposer: string | null };

type AuditFilter = {
  readonly subject: string | undefined;
  readonly operator: string | undefined;
  /** A day as YYYY-MM-DD, which begins at midnight UTC. */
  readonly since: string | undefined;
};

/** Lists entries of the audit log, newest first. */
export const listAudit = async (sql: Sql, { subject, operator, since }: AuditFilter) => sql<
  AuditRow[]
>`
  select a.*, p.operator as proposer
    from operator_actions a left join operator_actions p on p.id = a.approves
   where ${when(sql, subject, (id) => sql`${id} in (a.subject_id, a.command ->> 'account')`)}
     and ${when(sql, operator, (name) => sql`a.operator = ${name}`)}
     and ${when(sql, since, (from) => sql`a.created_at >= ${new Date(from)}`)}
   order by a.created_at desc, a.id desc limit ${mostRead}`;
