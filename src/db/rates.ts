import { crossMid, parseRate, type Rate } from '../domain/fx.js';
import type { Signature } from '../domain/operator.js';
import type { Mode } from './accounts.js';
import { bigints, type Database, firstRow, type Sql, transaction, when } from './client.js';
import { recordCommand } from './operatorActions.js';
import { orderAndLimit, type Page, pageRows, toPage } from './page.js';

/** A stored rate: units of the currency per euro, exact. */
export type CurrencyRate = {
  readonly id: bigint;
  readonly currency: string;
  readonly perEuro: string;
  readonly provider: string;
  readonly asOf: Date;
};
export type CurrencyRates = readonly CurrencyRate[];

/** The origin of a mid rate: provider and time of the older of its two halves, and the IDs of both. */
export type RateOrigin = {
  readonly rateProvider: string;
  readonly rateAsOf: Date;
  readonly sourceRateId: bigint | null;
  readonly destinationRateId: bigint | null;
};

/** A provider of rates. Test figures are never used if there is a live account. */
export type RateProvider = { readonly provider: string; readonly isForTests: boolean };

/** A rate that jumped and waits for an operator's decision, with the last accepted rate. */
export type WaitingRate = CurrencyRate & { readonly lastPerEuro: string };

/** An arbitrary number, but every change of rates must use the same one, and so must live accounts. */
const advisoryLock = 7_203_154_882;

/** Runs one change of rates at a time, because each depends on the result of the previous one. */
function changeRates<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
  return transaction(database, async (sql) => {
    await sql`select pg_advisory_xact_lock(${advisoryLock}::bigint)`;
    return work(sql);
  });
}

/**
 * Stores a provider's rates unless they are older than its previous ones, puts those into use that have
 * not jumped, and returns the rates that wait for an operator. The database rejects any provider but the
 * pinned one, test figures if there is a live account, and rates from the future.
 */
export async function storeRates(
  database: Database,
  { provider, isForTests }: RateProvider,
  { asOf, perEuro }: { readonly asOf: Date; readonly perEuro: ReadonlyMap<string, string> },
): Promise<readonly WaitingRate[]> {
  const currencies = [...perEuro.keys()];
  return changeRates(database, async (sql) => {
    await sql`
      insert into rate_provider (provider, is_for_tests) values (${provider}, ${isForTests})
      on conflict do nothing`;
    await sql`
      insert into rates (currency, per_euro, provider, as_of)
      select t.currency, t.per_euro, ${provider}, ${asOf}
        from unnest(${currencies}::text[], ${[...perEuro.values()]}::text[]::numeric[])
               with ordinality as t (currency, per_euro, place)
       where not exists (select from rates r where r.provider = ${provider} and r.as_of > ${asOf})
       order by t.place`;
    await sql`select take_accepted_rates(${currencies}::text[])`;
    return listWaitingRates(sql);
  });
}

/** Returns the waiting rates, at most one per currency. */
export const listWaitingRates = async (sql: Sql) => sql<WaitingRate[]>`
  select id, currency, per_euro::text, provider, as_of, last_per_euro::text
    from waiting_rates order by currency`;

/** Accepts or rejects a waiting rate; returns false if no rate with this ID is waiting. */
export async function decideRate(
  database: Database,
  id: string,
  outcome: 'accepted' | 'rejected',
  signature: Signature,
): Promise<boolean> {
  return changeRates(database, async (sql) => {
    const [waiting] = await sql`select from waiting_rates where id::text = ${id}`;
    if (waiting === undefined) return false;
    const operator = await recordCommand(sql, signature, id, { kind: `rates ${outcome}` });
    await sql`
      insert into rate_decisions (rate_id, outcome, operator, reason)
      select id, ${outcome}, ${operator}, ${signature.reason} from rates where id::text = ${id}`;
    await sql`select take_accepted_rates(array(select currency from rates where id::text = ${id}))`;
    return true;
  });
}

/**
 * Pins a provider. The previous provider's rates are no longer used, so that no price combines the rates
 * of two providers.
 */
export async function pinProvider(
  database: Database,
  { provider, isForTests }: RateProvider,
  signature: Signature,
): Promise<void> {
  await changeRates(database, async (sql) => {
    const operator = await recordCommand(sql, signature, provider, { kind: 'rates use' });
    await sql`
      insert into rate_provider (provider, is_for_tests, operator, reason)
      values (${provider}, ${isForTests}, ${operator}, ${signature.reason})
      on conflict (is_pinned) do update
         set (provider, is_for_tests, operator, reason, pinned_at) =
             (excluded.provider, excluded.is_for_tests, excluded.operator, excluded.reason, now())`;
    await sql`select take_accepted_rates(array(select distinct currency from rates))`;
  });
}

/** Finds rates by their IDs, however old. */
export const findRates = async (sql: Sql, ids: readonly (bigint | null)[]) => sql<CurrencyRate[]>`
  select id, currency, per_euro::text, provider, as_of from rates
   where id = any (${bigints(ids)}::bigint[])`;

/** Maximum age of a rate used for pricing, in milliseconds, by the account's mode. */
export type RateAges = Readonly<Record<Mode, number>>;

/** Returns the same as `currentRates`, with the maximum age for the account of these payouts. */
export const currentRatesFor = async (
  sql: Sql,
  { test, live }: RateAges,
  payoutIds: readonly string[],
) => sql<CurrencyRate[]>`
  select id, currency, per_euro::text as per_euro, provider, as_of from current_rates
   where as_of > now() - make_interval(secs => (
           select case a.mode when 'live' then ${live / 1000}::float8 else ${test / 1000} end
             from payouts p join accounts a on a.id = p.account_id
            where p.id = ${payoutIds[0] ?? null}))`;

/**
 * Returns the current rates of all or some currencies. Leaves out those older than the limit, as if
 * there were none.
 */
export const currentRates = async (
  sql: Sql,
  maximumAgeMs: number,
  currencies?: readonly string[],
) => sql<CurrencyRate[]>`
  select id, currency, per_euro::text as per_euro, provider, as_of from current_rates
   where as_of > now() - make_interval(secs => ${maximumAgeMs / 1000})
     and ${when(sql, currencies, (some) => sql`currency = any (${some})`)}`;

/** A past mid rate with both of its halves. Its ID and times are those of the half that arrived last. */
export type PastRate = Pick<CurrencyRate, 'id' | 'provider' | 'asOf'> & {
  readonly arrivedAt: Date;
  readonly sourceCurrency: string;
  readonly sourceId: bigint;
  readonly sourcePerEuro: string;
  readonly sourceAsOf: Date;
  readonly destinationCurrency: string;
  readonly destinationId: bigint;
  readonly destinationPerEuro: string;
  readonly destinationAsOf: Date;
};

/**
 * Lists a page of the past mid rates of a currency pair, by publication. Each accepted rate of either
 * currency makes a mid rate with the last accepted rate of the other currency from the same provider.
 * Halves that arrived together make one mid rate. A pair of equal currencies has none.
 */
export async function listPastRates(sql: Sql, page: Page, source: string, destination: string) {
  // Read one more, because the first row may be the other half of the cursor's mid rate, which is dropped.
  const readable = { ...page, limit: page.limit + 1 };
  const rows = await sql<PastRate[]>`
    select r.id, r.provider, r.as_of, r.arrived_at,
           s.currency as source_currency, s.id as source_id, s.per_euro::text as source_per_euro,
           s.as_of as source_as_of, d.currency as destination_currency, d.id as destination_id,
           d.per_euro::text as destination_per_euro, d.as_of as destination_as_of
      from (values (${source}, ${destination}), (${destination}, ${source})) pair (own, other)
     cross join lateral (
       select r.*, other_id from accepted_rates r
        cross join lateral (
          select id from accepted_rates o
           where o.currency = pair.other and o.provider = r.provider
             and (o.as_of, o.id) <= (r.as_of, r.id)
           order by o.as_of desc, o.id desc limit 1) o (other_id)
        where currency = pair.own and pair.own <> pair.other
          and ${pageRows(sql, readable, ['as_of', 'id'])}) r
      join rates s on s.id = case when r.currency = ${source} then r.id else other_id end
      join rates d on d.id = case when r.currency = ${source} then other_id else r.id end
     where not exists (select from accepted_rates t
             where t.currency = pair.other and t.provider = r.provider and t.as_of = r.as_of
               and t.arrived_at = r.arrived_at and t.id > r.id)
    ${orderAndLimit(sql, page, ['r.as_of', 'r.id'])}`;
  return toPage(page, rows);
}

/** Finds the position of an accepted rate in the list of a currency pair. */
export const positionOfRate = (sql: Sql, id: string, pair: readonly string[]) =>
  firstRow(sql<{ at: Date; id: string }[]>`
    select as_of as at, id::text from accepted_rates where id = ${id} and currency = any (${pair})`);

function halvesOf(rates: CurrencyRates, source: string, destination: string) {
  const from = rates.find((rate) => rate.currency === source);
  const to = rates.find((rate) => rate.currency === destination);
  return from === undefined || to === undefined ? undefined : { from, to };
}

/** Returns the mid rate between two currencies, undefined if a rate is missing, 1 if they are equal. */
export function midOf(rates: CurrencyRates, source: string, destination: string): Rate | undefined {
  if (source === destination) return parseRate('1');
  const halves = halvesOf(rates, source, destination);
  return halves && crossMid(halves.from.perEuro, halves.to.perEuro);
}

/** Returns the origin of a mid rate; throws if there is no such rate. */
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
