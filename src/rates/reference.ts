import type { RateSource } from './rateSource.js';

// Illustrative mid rates of about 20 November 2026, units for one euro. They are
// written by hand so that a fresh checkout can quote at once: not a market feed,
// and not to be used for real money. AED and SAR keep their pegs to the US dollar.
const perEuro: ReadonlyMap<string, string> = new Map(
  Object.entries({
    EUR: '1',
    USD: '1.1612',
    GBP: '0.87940',
    JPY: '180.42',
    CZK: '24.180',
    DKK: '7.4691',
    HUF: '381.60',
    PLN: '4.2280',
    RON: '5.0890',
    SEK: '10.9640',
    CHF: '0.93120',
    ISK: '146.80',
    NOK: '11.7160',
    TRY: '53.2100',
    AUD: '1.7685',
    BRL: '6.1930',
    CAD: '1.6254',
    CNY: '8.2210',
    HKD: '9.0395',
    IDR: '19412.50',
    ILS: '3.7820',
    INR: '104.3500',
    KRW: '1702.40',
    MXN: '21.3480',
    MYR: '4.8020',
    NZD: '2.0455',
    PHP: '68.190',
    SGD: '1.5126',
    THB: '37.610',
    ZAR: '19.9850',
    KWD: '0.35625',
    AED: '4.2645',
    SAR: '4.3545',
  }),
);

/**
 * The table that is shipped with the project. It is as of the moment it is read,
 * because a fixed table holds whenever it is read; how old its figures are is in
 * the provider's name.
 */
export const referenceSource: RateSource = {
  provider: 'corridor-reference-2026-11-20',
  isForTests: true,
  fetch: async () => ({ asOf: new Date(), perEuro }),
};
