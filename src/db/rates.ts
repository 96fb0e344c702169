import { crossMid, type Rate } from '../domain/fx.js';
import type { Sql } from './client.js';

/** Where a rate comes from, as shown on a quote. */
export type RateOrigin = { readonly provider: string; readonly asOf: Date };

export type CurrencyRate = RateOrigin & { readonly currency: string; readonly perEuro: string };

/** Replaces the rates of the given currencies, unless newer ones are stored already. */
export async function storeRates(
  sql: Sql,
  origin: RateOrigin,
  perEuro: ReadonlyMap<string, string>,
): Promise<void> {
  await sql`
    insert into rates (currency, per_euro, provider, as_of)
    select currency, per_euro, ${origin.provider}, ${origin.asOf}
      from unnest(${[...perEuro.keys()]}::text[], ${[...perEuro.values()]}::text[]::numeric[])
             as t (currency, per_euro)
    on conflict (currency) do update
       set per_euro = excluded.per_euro, provider = excluded.provider, as_of = excluded.as_of
     where rates.as_of <= excluded.as_of`;
}

/** The rates that are not older than the limit; an older one is as good as none. */
export async function currentRates(
  sql: Sql,
  maximumAgeMs: number,
): Promise<readonly CurrencyRate[]> {
  return sql<CurrencyRate[]>`
    select currency, per_euro::text as per_euro, provider, as_of from rates
     where as_of > now() - make_interval(secs => ${maximumAgeMs / 1000})`;
}

/** A rate as a batch keeps it: the figure alone. */
export type RateFigure = Pick<CurrencyRate, 'currency' | 'perEuro'>;

/** The mid rate from one currency to another, or undefined when either is not there. */
export function midOf(
  rates: readonly RateFigure[],
  source: string,
  destination: string,
): Rate | undefined {
  const from = rates.find((rate) => rate.currency === source);
  const to = rates.find((rate) => rate.currency === destination);
  return from === undefined || to === undefined ? undefined : crossMid(from.perEuro, to.perEuro);
}

/** Where a mid rate comes from: the older of its two halves. */
export function originOf(
  rates: readonly CurrencyRate[],
  currencies: readonly string[],
): RateOrigin | undefined {
  return rates
    .filter((rate) => currencies.includes(rate.currency))
    .toSorted((a, b) => a.asOf.getTime() - b.asOf.getTime())[0];
}
