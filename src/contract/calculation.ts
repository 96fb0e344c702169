import type { AcceptedColumns, PayoutRow } from '../db/payouts.js';
import type { CurrencyRates } from '../db/rates.js';
import type { TermsRow } from '../db/terms.js';
import { formatMinor } from '../domain/money.js';
import type { ContractObject } from './schemas.js';

/** The price of a quote or of an accepted payout. */
type PricedRow = AcceptedColumns &
  Pick<
    PayoutRow,
    'fixedSide' | 'feeTermsId' | 'spreadTermsId' | 'sourceRateId' | 'destinationRateId'
  >;

/**
 * Explains how a price was computed, step by step. Each step has its result, its rule and all of its inputs,
 * so that a pocket calculator gives the same result. Amounts are in major units of their currency.
 */
export function calculationObject(
  row: PricedRow,
  terms: readonly TermsRow[],
  rates: CurrencyRates,
): ContractObject<'calculation'> {
  const { sourceCurrency, destinationCurrency, mid, rate } = row;
  const format = (minor: bigint) => formatMinor(minor, sourceCurrency);
  const [source_amount, fee] = [format(row.sourceMinor), format(row.feeMinor)];
  const net_amount = format(row.netMinor);
  const received = formatMinor(row.receiveMinor, destinationCurrency);
  const feeTerms = terms.find(({ id }) => id === row.feeTermsId);
  const spread = terms.find(({ id }) => id === row.spreadTermsId);
  const middle = { ...halfOf('source', row, rates), ...halfOf('destination', row, rates) };
  const isExchange = sourceCurrency !== destinationCurrency;
  const feeInputs = feeTerms && {
    terms: `terms_${feeTerms.id}`,
    fixed: format(feeTerms.fixedMinor),
    basis_points: `${feeTerms.basisPoints}`,
    minimum: format(feeTerms.minimumMinor),
  };
  const spreadInputs = spread && {
    terms: `terms_${spread.id}`,
    basis_points: `${spread.spreadBasisPoints}`,
  };
  const steps = [
    ['fee', fee, sourceCurrency, feeRule, { source_amount, ...feeInputs }],
    ['net_amount', net_amount, sourceCurrency, 'source_amount - fee', { source_amount, fee }],
    ['mid_rate', mid, null, isExchange ? midRule : '1 within one currency', middle],
    ['rate', rate, null, isExchange ? rateRule : 'mid_rate', { mid_rate: mid, ...spreadInputs }],
    [
      'receive_amount',
      received,
      destinationCurrency,
      row.fixedSide === 'destination' ? reachedRule : 'net_amount * rate, rounded down',
      { net_amount, rate },
    ],
  ] as const;
  return {
    object: 'calculation',
    steps: steps.map(([step, result, currency, rule, inputs]) => ({
      ...{ step, result, currency, rule, inputs },
    })),
  };
}

const feeRule =
  'the larger of minimum and fixed + source_amount * basis_points / 10000, rounded up';
const midRule =
  'destination_per_euro / source_per_euro, rounded half to even to 12 significant digits';
const rateRule = 'mid_rate * (1 - basis_points / 10000), rounded down to 10 significant digits';
const reachedRule =
  'the amount requested; source_amount is the smallest for which net_amount * rate reaches it';

/** Returns the published rate of one of the two currencies, as inputs. Within one currency there is none. */
function halfOf(side: 'source' | 'destination', row: PricedRow, rates: CurrencyRates) {
  const rate = rates.find(({ id }) => id === row[`${side}RateId`]);
  return (
    rate && {
      [`${side}_per_euro`]: rate.perEuro,
      [`${side}_rate`]: `rate_${rate.id}`,
      [`${side}_provider`]: rate.provider,
      [`${side}_as_of`]: rate.asOf.toISOString(),
    }
  );
}
