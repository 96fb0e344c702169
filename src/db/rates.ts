import { crossMid, type Rate } from '../domain/fx.js';
import type { Signature } from '../domain/operator.js';
import { bigints, type Database, type Sql, transaction, when } from './client.js';
import { recordCommand } from './operatorActions.js';

/** A rate that is kept: units of the currency for one euro, exact. */
export type CurrencyRate = {
  readonly id: bigint;
  readonly currency: string;
  readonly perEuro: string;
  readonly provider: string;
  readonly asOf: Date;
};
export type CurrencyRates = readonly CurrencyRate[];

/** Where a mid rate comes from: the older of its two halves, and the ids of both. */
export type RateOrigin = {
  readonly rateProvider: string;
  readonly rateAsOf: Date;
  readonly sourceRateId: bigint | null;
  readonly destinationRateId: bigint | null;
};

/** A source of rates; test figures are never used beside a live account. */
export type RateProvider = { readonly provider: string; readonly isForTests: boolean };

/** A rate that jumped and waits for a person, beside the last one that was accepted. */
export type WaitingRate = CurrencyRate & { readonly lastPerEuro: string };

/** Any number will do, as long as every change of the rates takes the same. */
const advisoryLock = 7_203_154_882;

/** One change at a time: each depends on the result of the one before. */
function change<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
  return transaction(database, async (sql) => {
    await sql`select pg_advisory_xact_lock(${advisoryLock}::bigint)`;
    return work(sql);
  });
}

/**
 * Keeps what a provider says, unless it is older than what it said before, puts in use what has
 * not jumped, and answers which rates wait for a person. The database refuses another provider
 * than the pinned one, figures for tests beside a live account, and a rate from the future.
 */
export async function storeRates(
  database: Database,
  { provider, isForTests }: RateProvider,
  { asOf, perEuro }: { readonly asOf: Date; readonly perEuro: ReadonlyMap<string, string> },
): Promise<readonly WaitingRate[]> {
  const currencies = [...perEuro.keys()];
  return change(database, async (sql) => {
    await sql`
      insert into rate_provider (provider, is_for_tests) values (${provider}, ${isForTests})
      on conflict do nothing`;
    await sql`
      insert into rates (currency, per_euro, provider, as_of)
      select t.currency, t.per_euro, ${provider}, ${asOf}
        from unnest(${currencies}::text[], ${[...perEuro.values()]}::text[]::numeric[])
               as t (currency, per_euro)
       where not exists (select from rates r where r.currency = t.currency
               and r.provider = ${provider} and r.as_of > ${asOf})
      on conflict do nothing`;
    await sql`select take_accepted_rates(${currencies}::text[])`;
    return listWaitingRates(sql);
  });
}

/** At most one a currency. */
export async function listWaitingRates(sql: Sql): Promise<readonly WaitingRate[]> {
  return sql<WaitingRate[]>`
    select id, currency, per_euro::text, provider, as_of, last_per_euro::text
      from waiting_rates order by currency`;
}

/** Decides on a rate that waits; false when none waits under that id. */
export async function decideRate(
  database: Database,
  id: string,
  outcome: 'accepted' | 'rejected',
  signature: Signature,
): Promise<boolean> {
  const { operator, reason } = signature;
  return change(database, async (sql) => {
    const { count } = await sql`
      insert into rate_decisions (rate_id, outcome, operator, reason)
      select id, ${outcome}, ${operator}, ${reason} from waiting_rates where id::text = ${id}`;
    await sql`select take_accepted_rates(array(select currency from rates where id::text = ${id}))`;
    if (count === 0) return false;
    await recordCommand(sql, signature, id, { kind: `rates ${outcome}` });
    return true;
  });
}

/**
 * Pins a provider. The rates of the one before are not used any more, so that no price is made of
 * the rates of two.
 */
export async function pinProvider(
  database: Database,
  { provider, isForTests }: RateProvider,
  signature: Signature,
): Promise<void> {
  const { operator, reason } = signature;
  await change(database, async (sql) => {
    await sql`
      insert into rate_provider (provider, is_for_tests, operator, reason)
      values (${provider}, ${isForTests}, ${operator}, ${reason})
      on conflict (is_pinned) do update
         set (provider, is_for_tests, operator, reason, pinned_at) =
             (excluded.provider, excluded.is_for_tests, excluded.operator, excluded.reason, now())`;
    await recordCommand(sql, signature, provider, { kind: 'rates use' });
    await sql`select take_accepted_rates(array(select distinct currency from rates))`;
  });
}

/** Rates by their ids, however old. */
export async function findRates(sql: Sql, ids: readonly (bigint | null)[]): Promise<CurrencyRates> {
  return sql<CurrencyRate[]>`
    select id, currency, per_euro::text, provider, as_of from rates
     where id = any (${bigints(ids)}::bigint[])`;
}

/**
 * The rates that are not older than the limit, of all currencies or of some; an older one is as
 * good as none.
 */
export async function currentRates(
  sql: Sql,
  maximumAgeMs: number,
  currencies?: readonly string[],
): Promise<CurrencyRates> {
  return sql<CurrencyRate[]>`
    select id, currency, per_euro::text as per_euro, provider, as_of from current_rates
     where as_of > now() - make_interval(secs => ${maximumAgeMs / 1000})
       and ${when(sql, currencies, (some) => sql`currency = any (${some})`)}`;
}

function halvesOf(rates: CurrencyRates, source: string, destination: string) {
  const from = rates.find((rate) => rate.currency === source);
  const to = rates.find((rate) => rate.currency === destination);
  return from === undefined || to === undefined ? undefined : { from, to };
}

/** The mid rate from one currency to another, or undefined when either is not there. */
export function midOf(rates: CurrencyRates, source: string, destination: string): Rate | undefined {
  const halves = halvesOf(rates, source, destination);
  return halves && crossMid(halves.from.perEuro, halves.to.perEuro);
}

/** Where a mid rate that there is comes from. Within one currency it is 1 by definition. */
export function originOf(rates: CurrencyRates, source: string, destination: string): RateOrigin {
  if (source === destination) {
    const rateAsOf = new Date();
    return { rateProvider: 'par', rateAsOf, sourceRateId: null, destinationRateId: null };
  }
  const halves = halvesOf(rates, source, destination);
  if (halves === undefined) throw new Error(`There is no rate from ${source} to ${destination}.`);
  const { from, to } = halves;
  const { provider: rateProvider, asOf: rateAsOf } = from.asOf < to.asOf ? from : to;
  return { rateProvider, rateAsOf, sourceRateId: from.id, destinationRateId: to.id };
}
