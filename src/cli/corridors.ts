import { transaction } from '../db/client.js';
import { insertOpening, listOpenings, type OpeningRow } from '../db/corridorOpenings.js';
import { recordCommand } from '../db/operatorActions.js';
import { corridorCurrencies } from '../domain/corridor.js';
import { printRows } from './table.js';
import { type Call, type Flags, futureTime, signatureOf, UsageError } from './usage.js';

/** Lists the current and scheduled rules that close or open corridors. */
export async function showOpenings(call: Call): Promise<void> {
  printRows(call, await listOpenings(call.database), 'Every corridor is open.', lineOf);
}

/** Closes or opens corridors from a currency, to a currency, or between two, now or from a future time. */
export async function changeOpening(call: Call, verb: 'close' | 'open'): Promise<void> {
  const { database, flags } = call;
  const signature = signatureOf(call);
  const [source, destination] = [currencyOf(flags, 'source'), currencyOf(flags, 'destination')];
  if (source === null && destination === null) {
    throw new UsageError('--source or --destination is missing.');
  }
  const validFrom = flags['from'] === undefined ? null : futureTime(flags, 'from');
  const opening = { source, destination, isOpen: verb === 'open' };
  const line = await transaction(database, async (sql) => {
    const row = await insertOpening(sql, opening, validFrom);
    const rule = lineOf(row);
    await recordCommand(sql, signature, `corridor_${row.id}`, { kind: `corridors ${verb}`, rule });
    return rule;
  });
  console.log(line);
}

function currencyOf(flags: Flags, name: string): string | null {
  const text = flags[name];
  if (text === undefined || corridorCurrencies().includes(text)) return text ?? null;
  throw new UsageError(`--${name} expects a currency: ${corridorCurrencies().join(', ')}.`);
}

/** Formats a rule, such as "USD to any currency  closed from …". */
function lineOf({ source, destination, isOpen, validFrom }: OpeningRow): string {
  const pair = `${source ?? 'any currency'} to ${destination ?? 'any currency'}`;
  return `${pair}  ${isOpen ? 'open' : 'closed'} from ${validFrom.toISOString()}`;
}
