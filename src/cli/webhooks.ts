import { type AilingEndpoint, ailingEndpoints } from '../db/operatorLists.js';
import { printRows, wrapped } from './table.js';
import type { Call } from './usage.js';

/** The endpoints that fail, or are disabled: those of all accounts, or of one. */
export async function listWebhooks(call: Call): Promise<void> {
  const rows = await ailingEndpoints(call.database, call.flags['account']);
  printRows(call, rows, 'No endpoint fails or is disabled.', lineOf);
}

function lineOf(row: AilingEndpoint): string {
  const { status, statusReason: why, failingSince } = row;
  const since = failingSince === null ? '' : `  failing since ${failingSince.toISOString()}`;
  return [
    `${row.id}  ${status}${why === null ? '' : `: ${why}`}${since}`,
    `  ${row.url}`,
    wrapped(`${row.accountId}, ${row.waiting} deliveries wait`, '  '),
  ].join('\n');
}
