import { describe, expect, test } from 'vitest';
import {
  type Acceptance,
  fundInOrder,
  heldRateMaximumAgeMs,
  type LockedQuote,
  type PayoutRequest,
  type RetriedPayout,
  refuseRetry,
} from '../../src/domain/acceptance.js';
import { parseRate, type Rate } from '../../src/domain/fx.js';
import { isRefusal, type Refusal } from '../../src/domain/refusal.js';
import { decide, type Facts } from '../assertions/decision.js';
import { findCorridor } from '../fixtures/corridors.js';

const fiveMinutesMs = 300_000;

/** 1,000.00 USD that are converted to 852.02 EUR. */
const quote: LockedQuote = {
  sourceCurrency: 'USD',
  destinationCurrency: 'EUR',
  fixedSide: 'source',
  amount: 100_000n,
  sourceMinor: 100_000n,
  feeMinor: 430n,
  netMinor: 99_570n,
  receiveMinor: 85_202n,
  midValueMinor: 85_630n,
  rate: parseRate('0.8557'),
  mid: parseRate('0.86'),
  usedBy: null,
  inTime: true,
};

const quoted: PayoutRequest = {
  quoteId: 'qt_1',
  beneficiaryId: 'bnf_1',
  sourceCurrency: null,
  destinationCurrency: null,
  fixedSide: null,
  amount: null,
  batchId: null,
  ageMs: 0,
};

const live: PayoutRequest = {
  ...quoted,
  quoteId: null,
  sourceCurrency: 'USD',
  fixedSide: 'source',
  amount: 100_000n,
};

/** A beneficiary whose details have not changed for a year. */
function receiving(currency: string) {
  const ageMs = 365n * 24n * 60n * 60n * 1000n;
  return { currency, since: new Date('2025-11-21T12:00:00.000Z'), ageMs };
}

const mids: Readonly<Record<string, Rate>> = {
  'USD to EUR': parseRate('0.86'),
  'USD to USD': parseRate('1'),
};
const facts: Facts = {
  quote,
  beneficiary: receiving('EUR'),
  openings: [],
  pairOf: (source, destination) => ({
    mid: mids[`${source} to ${destination}`],
    corridor: findCorridor(source, destination),
  }),
  availableOf: (currency) => (currency === 'USD' ? 100_000n : 0n),
};
/** The market with another rate. */
const at = (mid: Rate | undefined) => (source: string, destination: string) => ({
  mid,
  corridor: findCorridor(source, destination),
});
const liveFacts: Facts = { ...facts, quote: undefined };

function accepted(request: PayoutRequest, known: Facts): Acceptance {
  const decided = decide(request, known);
  if (isRefusal(decided)) throw new Error(JSON.stringify(decided));
  return decided;
}

function refused(request: PayoutRequest, known: Facts): Refusal {
  const decided = decide(request, known);
  if (!isRefusal(decided)) throw new Error('The payout was accepted');
  return decided;
}

describe('a payout with a quote', () => {
  test('is accepted with the frozen amounts of the quote, whatever the market says now', () => {
    const { usedBy: _, inTime: __, ...frozen } = quote;
    expect(accepted(quoted, { ...facts, pairOf: at(parseRate('9')) })).toMatchObject(frozen);
  });

  test('may use the whole balance and not a cent more', () => {
    accepted(quoted, { ...facts, availableOf: () => 100_000n });
    expect(refused(quoted, { ...facts, availableOf: () => 99_999n })).toEqual({
      refused: true,
      code: 'insufficient_funds',
      param: 'quote',
      expected: 'at most 999.99 USD, the available balance',
      received: '1000.00 USD',
      detail: '999.99 USD is available; this payout needs 1000.00 USD. Add funds first.',
    });
  });

  test('may be five minutes old and not a millisecond older', () => {
    expect(heldRateMaximumAgeMs).toBe(fiveMinutesMs);
    accepted({ ...quoted, ageMs: fiveMinutesMs }, facts);
    expect(refused({ ...quoted, ageMs: fiveMinutesMs + 1 }, facts)).toEqual({
      refused: true,
      code: 'quote_expired',
      param: 'quote',
      expected: 'a payout that is decided within five minutes of its request',
      received: 'qt_1',
      detail: 'The payout could not be decided within five minutes. Create a new quote.',
    });
  });

  test('is refused when it was requested after the quote expired, however young the payout is', () => {
    const late = { ...facts, quote: { ...quote, inTime: false } };
    expect(refused(quoted, late)).toMatchObject({
      code: 'quote_expired',
      expected: 'a payout requested before the expires_at of its quote',
    });
  });

  test('is refused when the account has no such quote', () => {
    expect(refused(quoted, { ...facts, quote: undefined })).toEqual({
      refused: true,
      code: 'quote_not_found',
      param: 'quote',
      expected: 'the id of a quote of this account (qt_…)',
      received: 'qt_1',
      detail: 'This account has no quote qt_1.',
    });
  });

  test('is refused when another payout has used the quote, and the refusal names it', () => {
    const used = { ...facts, quote: { ...quote, usedBy: 'po_2' } };
    expect(refused(quoted, used)).toEqual({
      refused: true,
      code: 'quote_used',
      param: 'quote',
      expected: 'a quote that no payout has used',
      received: 'qt_1',
      detail: 'The quote was used by po_2. Create a new quote.',
    });
  });

  test('is refused when the account has no such beneficiary', () => {
    expect(refused(quoted, { ...facts, beneficiary: undefined })).toEqual({
      refused: true,
      code: 'beneficiary_not_found',
      param: 'beneficiary',
      expected: 'the id of a beneficiary of this account (bnf_…)',
      received: 'bnf_1',
      detail: 'This account has no beneficiary bnf_1.',
    });
  });

  test('is refused when the beneficiary receives another currency', () => {
    expect(refused(quoted, { ...facts, beneficiary: receiving('GBP') })).toEqual({
      refused: true,
      code: 'currency_mismatch',
      param: 'quote',
      expected: 'a quote to GBP, the currency of the beneficiary',
      received: 'EUR',
    });
  });

  test('is refused for the quote first, then the beneficiary, then the funds', () => {
    const hopeless: LockedQuote = { ...quote, usedBy: 'po_2', inTime: false };
    const none = { ...facts, beneficiary: undefined, availableOf: () => 0n };
    const steps: readonly Facts[] = [
      { ...none, quote: undefined },
      { ...none, quote: hopeless },
      { ...none, quote: { ...hopeless, usedBy: null } },
      none,
      { ...none, beneficiary: receiving('GBP') },
      { ...none, beneficiary: receiving('EUR') },
    ];
    expect(steps.map((known) => refused(quoted, known).code)).toEqual([
      'quote_not_found',
      'quote_used',
      'quote_expired',
      'beneficiary_not_found',
      'currency_mismatch',
      'insufficient_funds',
    ]);
  });
});

describe('a payout at the live rate', () => {
  test('is priced at the current rate, in the currency of the beneficiary', () => {
    expect(accepted(live, liveFacts)).toEqual({
      sourceCurrency: 'USD',
      destinationCurrency: 'EUR',
      fixedSide: 'source',
      amount: 100_000n,
      sourceMinor: 100_000n,
      feeMinor: 430n,
      netMinor: 99_570n,
      receiveMinor: 85_202n,
      midValueMinor: 85_630n,
      rate: parseRate('0.8557'),
      mid: parseRate('0.86'),
    });
  });

  test('has no age limit, because no rate was promised', () => {
    accepted({ ...live, ageMs: 30 * 24 * 3_600_000 }, liveFacts);
  });

  test('in a batch keeps the rates of the batch for five minutes', () => {
    const item = { ...live, batchId: 'bat_1' };
    accepted({ ...item, ageMs: fiveMinutesMs }, liveFacts);
    expect(refused({ ...item, ageMs: fiveMinutesMs + 1 }, liveFacts)).toEqual({
      refused: true,
      code: 'rate_expired',
      expected: 'an item that is decided within five minutes of its batch',
      hint: 'Send the item again in a new batch.',
    });
  });

  test('is refused when the beneficiary receives another currency than the requested one', () => {
    const request = { ...live, destinationCurrency: 'USD' };
    expect(refused(request, liveFacts)).toMatchObject({
      code: 'currency_mismatch',
      param: 'destination_currency',
      expected: 'EUR, the currency of the beneficiary',
      received: 'USD',
    });
    accepted(request, { ...liveFacts, beneficiary: receiving('USD') });
  });

  test('is refused for its amount when the balance is too low', () => {
    expect(refused(live, { ...liveFacts, availableOf: () => 0n })).toMatchObject({
      code: 'insufficient_funds',
      param: 'amount',
      expected: 'at most 0.00 USD, the available balance',
      received: '1000.00 USD',
    });
  });

  test('is refused like a quote when it cannot be priced', () => {
    expect(refused(live, { ...liveFacts, pairOf: at(undefined) })).toEqual({
      refused: true,
      code: 'rate_unavailable',
      expected: 'a current rate from USD to EUR',
      hint: 'No rate source has published one recently enough. Try again later.',
    });
    expect(refused({ ...live, amount: 1n }, liveFacts).code).toBe('amount_too_small');
    expect(refused({ ...live, amount: 10n ** 14n }, liveFacts).code).toBe('amount_too_large');
    expect(refused({ ...live, sourceCurrency: 'RUB' }, liveFacts).code).toBe(
      'currency_unsupported',
    );
  });

  test('is refused for the rate first, then the beneficiary, the price and the funds', () => {
    const old = { ...live, batchId: 'bat_1', ageMs: fiveMinutesMs + 1, destinationCurrency: 'USD' };
    const young = { ...old, ageMs: 0 };
    const empty = { ...liveFacts, beneficiary: undefined, availableOf: () => 0n };
    const found = { ...empty, beneficiary: receiving('EUR') };
    const steps: readonly (readonly [PayoutRequest, Facts])[] = [
      [old, empty],
      // Without the destination currency, the cost cannot be known.
      [{ ...young, amount: 1n }, empty],
      [{ ...young, amount: 1n }, found],
      [young, found],
      [{ ...young, destinationCurrency: 'EUR' }, found],
    ];
    expect(steps.map(([request, known]) => refused(request, known).code)).toEqual([
      'rate_expired',
      'beneficiary_not_found',
      'amount_too_small',
      'currency_mismatch',
      'insufficient_funds',
    ]);
    expect(refused(live, empty)).toMatchObject({ param: 'beneficiary', received: 'bnf_1' });
  });

  test.each(['sourceCurrency', 'amount', 'fixedSide'])(
    'without its %s is a bug and throws',
    (name) => {
      expect(() => decide({ ...live, [name]: null }, liveFacts)).toThrow(
        'A live-rate payout has a source currency, an amount and a fixed side.',
      );
    },
  );
});

describe('payouts in the order of their request', () => {
  const of = (id: string, sourceMinor: bigint, quoteId: string | null = null) => ({
    id,
    request: { ...live, quoteId },
    priced: { ...quote, sourceMinor },
    facts: { beneficiary: undefined },
  });
  const codesOf = (payouts: readonly ReturnType<typeof of>[], availableMinor: bigint) =>
    fundInOrder(payouts, {
      state: 'open',
      available: new Map([['USD', availableMinor]]),
      limitUses: new Map(),
      payeeDelays: [],
    }).map((decided) => (isRefusal(decided) ? decided.code : 'accepted'));

  test('are accepted as long as the balance left by the earlier ones covers them', () => {
    const payouts = [of('po_1', 60n), of('po_2', 50n), of('po_3', 40n), of('po_4', 1n)];
    expect(codesOf(payouts, 100n)).toEqual([
      'accepted',
      'insufficient_funds',
      'accepted',
      'insufficient_funds',
    ]);
  });

  test('use a quote once, and a payout that could not be paid does not use it', () => {
    const payouts = [of('po_1', 90n, 'qt_1'), of('po_2', 10n, 'qt_1'), of('po_3', 10n, 'qt_1')];
    expect(codesOf(payouts, 50n)).toEqual(['insufficient_funds', 'accepted', 'quote_used']);
  });
});

describe('a retry', () => {
  const failed = { id: 'po_1', status: 'failed', retriedBy: null, mayBePaid: false } as const;

  test.each<[string, Partial<RetriedPayout>]>([
    ['a failed payout', {}],
    ['a canceled payout', { status: 'canceled' }],
    ['a returned payout', { status: 'returned' }],
    ['one that it retries already', { retriedBy: 'po_2' }],
  ])('of %s is allowed', (_, retried) => {
    expect(refuseRetry('po_2', { ...failed, ...retried })).toBeUndefined();
  });

  test.each<[Partial<RetriedPayout>, string]>([
    [{ retriedBy: 'po_3' }, 'po_1 was retried by po_3. Retry po_3 if it failed.'],
    [
      { status: 'settled' },
      'po_1 is settled: retry a payout only after it failed, was canceled or was returned.',
    ],
    [
      { mayBePaid: true },
      'The bank may have paid po_1 or an earlier payout that po_1 retries: contact the operator of the service.',
    ],
  ])('of a payout with %o is refused', (retried, detail) => {
    expect(refuseRetry('po_2', { ...failed, ...retried })).toMatchObject({
      ...{ code: 'retry_refused', param: 'retry_of', received: 'po_1', detail },
    });
  });
});
