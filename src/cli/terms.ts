import { findAccount } from '../db/accounts.js';
import { transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import { currentTerms, lastMonthOn, listTerms, replaceTerms, type TermsRow } from '../db/terms.js';
import { corridorCurrencies } from '../domain/corridor.js';
import { formatMinor, parseMajor } from '../domain/money.js';
import { type Call, existing, type Flags, signatureOf, UsageError } from './usage.js';

/** Terms that hold now or will: everybody's, or an account's own. */
export async function showTerms({ database, id: currency, flags }: Call): Promise<void> {
  const accountId = await accountOf(database, flags);
  const rows = await listTerms(database, accountId, currency === '' ? undefined : currency);
  if (rows.length === 0) console.log('There are no terms like that.');
  for (const row of rows) console.log(lineOf(row));
}

/** Puts terms in force for a time: what no flag names stays as it is now. */
export async function setTerms(call: Call): Promise<void> {
  const { database, flags } = call;
  const signature = signatureOf(flags);
  const terms = await termsTyped(call, timeOf(flags, 'from'));
  const set = await transaction(database, async (sql) => {
    const row = await replaceTerms(sql, terms);
    const asked = { kind: 'terms set', currency: terms.currency };
    if (row !== undefined) await recordCommand(sql, signature, `terms_${row.id}`, asked);
    return row;
  });
  if (set === undefined) throw new UsageError('Other terms begin at that time.');
  console.log(lineOf(set));
}

/** What the payouts of the last 30 days would have cost on these terms; nothing changes. */
export async function previewTerms(call: Call): Promise<void> {
  const terms = await termsTyped(call, new Date());
  const { currency } = terms;
  const { payouts, feeMinor, newFeeMinor } = await lastMonthOn(call.database, terms);
  const [was, would] = [feeMinor, newFeeMinor].map((minor) => formatMinor(minor, currency));
  console.log(`${payouts} payouts of 30 days: fees of ${was} ${currency}, would be ${would}`);
}

async function termsTyped(call: Call, validFrom: Date): Promise<Omit<TermsRow, 'id'>> {
  const { database, id: currency, flags } = call;
  if (!corridorCurrencies().includes(currency)) {
    throw new UsageError(`Expected a currency: ${corridorCurrencies().join(', ')}.`);
  }
  const accountId = await accountOf(database, flags);
  const { terms } = await currentTerms(database, accountId ?? '');
  const now = existing(
    'terms',
    currency,
    terms.find((row) => row.currency === currency),
  );
  const sum = (name: string, present: bigint) => {
    const text = flags[name];
    const minor = text === undefined ? present : parseMajor(text, currency);
    if (minor !== undefined && minor >= 0n) return minor;
    throw new UsageError(
      `--${name} expects a sum of ${currency}, such as ${formatMinor(100n, currency)}.`,
    );
  };
  const validUntil = flags['until'] === undefined ? null : timeOf(flags, 'until');
  if (validUntil && validUntil <= validFrom) throw new UsageError('--until expects a later time.');
  return {
    accountId,
    currency,
    fixedMinor: sum('fixed', now.fixedMinor),
    basisPoints: basisPointsOf(flags, 'basis-points', now.basisPoints),
    minimumMinor: sum('minimum', now.minimumMinor),
    maximumMinor: sum('maximum', now.maximumMinor),
    spreadBasisPoints: basisPointsOf(flags, 'spread', now.spreadBasisPoints),
    validFrom,
    validUntil,
  };
}

function basisPointsOf(flags: Flags, name: string, present: number): number {
  const text = flags[name] ?? `${present}`;
  if (/^\d{1,4}$/.test(text)) return Number.parseInt(text, 10);
  throw new UsageError(`--${name} expects basis points, 0 to 9999.`);
}

/** With its zone, so that no laptop decides what midnight is. */
function timeOf(flags: Flags, name: string): Date {
  const text = flags[name] ?? '';
  const time = new Date(text);
  if (/^\d{4}-\d\d-\d\dT.*Z$/.test(text) && !Number.isNaN(time.getTime())) return time;
  throw new UsageError(`--${name} expects a time in UTC, such as 2027-01-01T00:00:00Z.`);
}

async function accountOf(database: Call['database'], { account }: Flags): Promise<string | null> {
  if (account === undefined) return null;
  return existing('account', account, await findAccount(database, account)).id;
}

/** "EUR  fee 0.30 + 40 bp, at least 1.00, spread 50 bp, at most 1000000.00  from … (terms_2)". */
function lineOf(row: TermsRow): string {
  const [fixed, minimum, maximum] = [row.fixedMinor, row.minimumMinor, row.maximumMinor].map(
    (minor) => formatMinor(minor, row.currency),
  );
  const until = row.validUntil === null ? '' : ` until ${row.validUntil.toISOString()}`;
  return (
    `${row.currency}  fee ${fixed} + ${row.basisPoints} bp, at least ${minimum}, ` +
    `spread ${row.spreadBasisPoints} bp, at most ${maximum}  ` +
    `from ${row.validFrom.toISOString()}${until} (terms_${row.id})`
  );
}
