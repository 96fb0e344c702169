import { findAccount } from '../db/accounts.js';
import { mostListed } from '../db/client.js';
import { type FailingEndpoint, failingEndpoints } from '../db/operatorLists.js';
import { printRows, wrapped } from './table.js';
import { type Call, existing } from './usage.js';

/** Lists failing and disabled endpoints, of all accounts or of one. */
export async function listWebhooks(call: Call): Promise<void> {
  const { database, flags } = call;
  const { account } = flags;
  if (account !== undefined) existing('account', account, await findAccount(database, account));
  const rows = await failingEndpoints(database, account);
  const none = 'No endpoint is failing or disabled.';
  printRows({ ...call, most: mostListed }, rows, none, lineOf);
}

function lineOf(row: FailingEndpoint): string {
  const { status, statusReason: why, failingSince } = row;
  const since = failingSince === null ? '' : `  failing since ${failingSince.toISOString()}`;
  return [
    `${row.id}  ${status}${why === null ? '' : `: ${why}`}${since}`,
    `  ${row.url}`,
    wrapped(`${row.accountId}, ${row.waiting} deliveries waiting`, '  '),
  ].join('\n');
}
