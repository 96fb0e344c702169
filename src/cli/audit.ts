import { mostListed } from '../db/client.js';
import { type AuditRow, listAudit, type OperatorActionRow } from '../db/operatorActions.js';
import { isDay } from '../domain/day.js';
import { printRows, wrapped } from './table.js';
import { type Call, UsageError } from './usage.js';

/**
 * Lists the audit log, newest first: who ran which command on what, why, with which outcome, and whose
 * proposal it executed. Of one subject, by one operator, or from a day on.
 */
export async function showAudit(call: Call): Promise<void> {
  const { by: operator, since } = call.flags;
  if (since !== undefined && !isDay(since))
    throw new UsageError('--since expects a day, such as 2026-11-24.');
  const subject = call.id === '' ? undefined : call.id;
  const rows = await listAudit(call.database, { subject, operator, since });
  printRows({ ...call, most: mostListed }, rows, 'No entry matches.', (row) => {
    const [command = '', ...others] = actionLines(row, ` ${row.subjectId}`);
    const lines = row.proposer === null ? others : [...others, `proposed by ${row.proposer}`];
    return [wrapped(command, '', '    '), ...lines.map((line) => wrapped(line, '  ', '    '))].join(
      '\n',
    );
  });
}

/** Formats an entry of the audit log as lines; `subject` follows the name of the command. */
export function actionLines(action: OperatorActionRow | AuditRow, subject = ''): readonly string[] {
  const { kind, ...rest } = action.command;
  const parameters = Object.keys(rest).length === 0 ? '' : ` ${JSON.stringify(rest)}`;
  return [
    `${action.createdAt.toISOString()}  ${action.operator}: ${kind}${subject}${parameters}`,
    `  ${action.outcome}: ${action.detail}`,
    `  ${action.id}, because: ${action.reason}`,
  ];
}
