import { findAccount } from '../db/accounts.js';
import { type Sql, transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import { compareFees, findTermsAt, insertTerms, listTerms, type TermsRow } from '../db/terms.js';
import { corridorCurrencies, feeFor } from '../domain/corridor.js';
import { writtenMinor } from '../domain/money.js';
import { countOf, sumOf } from './amounts.js';
import { printRows } from './table.js';
import { type Call, existing, type Flags, futureTime, signatureOf, UsageError } from './usage.js';

/** Lists current and scheduled terms: the general ones, or an account's own. */
export async function showTerms(call: Call): Promise<void> {
  const { database, id: currency, flags } = call;
  const accountId = await accountOf(database, flags);
  const rows = await listTerms(database, accountId, currency === '' ? undefined : currency);
  printRows(call, rows, 'No terms found.', lineOf);
}

/** Schedules terms. Values without a flag stay as they will be at that time. */
export async function setTerms(call: Call): Promise<void> {
  const { database, id: currency, flags } = call;
  const signature = signatureOf(call);
  const validFrom = futureTime(flags, 'from');
  const validUntil = flags['until'] === undefined ? null : futureTime(flags, 'until');
  if (validUntil !== null && validUntil <= validFrom) {
    throw new UsageError('--until expects a time after --from.');
  }
  const line = await transaction(database, async (sql) => {
    const typed = await termsTyped(sql, currency, flags, validFrom);
    const row = await insertTerms(sql, { ...typed, validFrom, validUntil });
    const terms = lineOf(row);
    const command = { kind: 'terms set', terms, ...(row.accountId && { account: row.accountId }) };
    await recordCommand(sql, signature, `terms_${row.id}`, command);
    return terms;
  });
  console.log(line);
}

/** Shows the fees that the last 30 days' payouts would have paid under these terms; changes nothing. */
export async function previewTerms({ database, id: currency, flags }: Call): Promise<void> {
  const terms = await termsTyped(database, currency, flags, new Date());
  const compared = await compareFees(database, terms);
  if (compared.length === 0) console.log('No such payout was settled in the last 30 days.');
  for (const { mode, payouts, feeMinor, newFeeMinor } of compared) {
    const [was, would] = [feeMinor, newFeeMinor].map((minor) => writtenMinor(minor, currency));
    const count = payouts === 1 ? '1 payout' : `${payouts} payouts`;
    console.log(`${mode}: ${count} paid ${was} ${currency} in fees, would pay ${would}`);
  }
}

async function termsTyped(sql: Sql, currency: string, flags: Flags, at: Date): Promise<TermsRow> {
  if (!corridorCurrencies().includes(currency)) {
    throw new UsageError(`CURRENCY expects one of ${corridorCurrencies().join(', ')}.`);
  }
  const accountId = await accountOf(sql, flags);
  const present = await findTermsAt(sql, accountId, currency, at);
  const sum = (name: string, kept: bigint) =>
    flags[name] === undefined ? kept : sumOf(flags, name, currency, { least: 0n });
  const points = (name: string, kept: number) =>
    countOf(name, flags[name] ?? `${kept}`, 'basis points', [0, 9999]);
  const terms = {
    ...present,
    accountId,
    fixedMinor: sum('fixed', present.fixedMinor),
    basisPoints: points('basis-points', present.basisPoints),
    minimumMinor: sum('minimum', present.minimumMinor),
    maximumMinor: sum('maximum', present.maximumMinor),
    spreadBasisPoints: points('spread', present.spreadBasisPoints),
  };
  // 10^14 is the API's maximum amount in every currency.
  if (terms.maximumMinor > 10n ** 14n || feeFor(terms.maximumMinor, terms) >= terms.maximumMinor) {
    const most = writtenMinor(10n ** 14n, currency);
    throw new UsageError(`--maximum expects more than its own fee, and at most ${most}.`);
  }
  return terms;
}

async function accountOf(sql: Sql, { account }: Flags): Promise<string | null> {
  if (account === undefined) return null;
  return existing('account', account, await findAccount(sql, account)).id;
}

/** E.g. "EUR  fee 0.30 + 40 bp, at least 1.00, spread 50 bp, at most 1,000,000.00  from … (terms_2)". */
function lineOf(row: TermsRow): string {
  const sum = (minor: bigint) => writtenMinor(minor, row.currency);
  const of = row.accountId === null ? '' : ` for ${row.accountId}`;
  const until = row.validUntil === null ? '' : ` until ${row.validUntil.toISOString()}`;
  return (
    `${row.currency}${of}  fee ${sum(row.fixedMinor)} + ${row.basisPoints} bp, ` +
    `at least ${sum(row.minimumMinor)}, spread ${row.spreadBasisPoints} bp, ` +
    `at most ${sum(row.maximumMinor)}  ` +
    `from ${row.validFrom.toISOString()}${until} (terms_${row.id})`
  );
}
