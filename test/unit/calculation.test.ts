import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { calculationObject } from '../../src/contract/calculation.js';
import { corridorCurrencies } from '../../src/domain/corridor.js';
import { crossMid, formatRate } from '../../src/domain/fx.js';
import { acceptEntry, releaseEntry, settleEntry } from '../../src/domain/ledger.js';
import { digitsOf, parseMajor } from '../../src/domain/money.js';
import type { FixedSide } from '../../src/domain/quote.js';
import { isRefusal } from '../../src/domain/refusal.js';
import { referenceSource } from '../../src/rates/reference.js';
import { findCorridor, firstTerms, price } from '../fixtures/corridors.js';

const { perEuro, asOf } = await referenceSource.fetch();
const rates = [...perEuro].map(([currency, value], index) => ({
  ...{ id: BigInt(index + 1), currency, perEuro: value, provider: 'reference', asOf },
}));
const rows = firstTerms.map((terms) => ({
  ...{ ...terms, accountId: null, validFrom: asOf, validUntil: null },
}));

/** An exact fraction, the only kind of number in this file. */
type Fraction = { readonly over: bigint; readonly under: bigint };

function fraction(text: string): Fraction {
  const [whole = '', decimals = ''] = text.split('.');
  return { over: BigInt(whole + decimals), under: 10n ** BigInt(decimals.length) };
}
const times = (a: Fraction, b: Fraction) => ({ over: a.over * b.over, under: a.under * b.under });
const divided = (a: Fraction, b: Fraction) => ({ over: a.over * b.under, under: a.under * b.over });
const sameAs = (a: Fraction, b: Fraction) => a.over * b.under === b.over * a.under;

/** Rounds to whole units of 10^-digits: down, up, or half to even. */
function rounded({ over, under }: Fraction, digits: number, how: 'down' | 'up' | 'even'): Fraction {
  const scale = 10n ** BigInt(digits);
  const below = (over * scale) / under;
  const rest = (over * scale) % under;
  const isUp =
    how === 'up'
      ? rest > 0n
      : how === 'even' && (rest * 2n > under || (rest * 2n === under && below % 2n === 1n));
  return { over: below + (isUp ? 1n : 0n), under: scale };
}

/** The number of decimals that gives a number this many significant digits. */
function decimalsFor({ over, under }: Fraction, significant: number): number {
  let decimals = significant;
  while ((over * 10n ** BigInt(decimals)) / under >= 10n ** BigInt(significant)) decimals -= 1;
  while ((over * 10n ** BigInt(decimals + 1)) / under < 10n ** BigInt(significant)) decimals += 1;
  return decimals;
}

const code = fc.constantFrom(...corridorCurrencies());
const requests = fc.record({
  sourceCurrency: code,
  destinationCurrency: code,
  fixedSide: fc.constantFrom<FixedSide>('source', 'destination'),
  amount: fc.bigInt({ min: 1_000n, max: 10n ** 8n }),
});

describe('a calculation', () => {
  test('can be recomputed step by step from its own inputs, and its legs sum to zero', () => {
    let checked = 0;
    fc.assert(
      fc.property(requests, (request) => {
        const { sourceCurrency, destinationCurrency, fixedSide } = request;
        const isExchange = sourceCurrency !== destinationCurrency;
        const half = (currency: string) => rates.find((rate) => rate.currency === currency);
        const [from, to] = [half(sourceCurrency), half(destinationCurrency)];
        const mid = crossMid(from?.perEuro ?? '', to?.perEuro ?? '');
        const priced = price({ ...request, mid });
        if (isRefusal(priced)) return;
        checked += 1;
        const accepted = { ...request, ...priced };
        for (const entry of [acceptEntry, settleEntry, releaseEntry]) {
          const sums = new Map<string, bigint>();
          for (const { currency, amountMinor } of entry(accepted).postings)
            sums.set(currency, (sums.get(currency) ?? 0n) + amountMinor);
          expect([...sums.values()].every((sum) => sum === 0n)).toBe(true);
        }
        const corridor = findCorridor(sourceCurrency, destinationCurrency);
        const { steps } = calculationObject(
          {
            ...{ ...request, ...priced },
            rate: formatRate(priced.rate),
            mid: formatRate(priced.mid),
            feeTermsId: corridor?.feeTermsId ?? null,
            spreadTermsId: corridor?.spreadTermsId ?? null,
            sourceRateId: isExchange ? (from?.id ?? null) : null,
            destinationRateId: isExchange ? (to?.id ?? null) : null,
          },
          rows,
          rates,
        );
        const [fee, net, middle, rate, receive] = steps.map(({ result, inputs }) => ({
          result: fraction(result),
          of: (name: string) => fraction(inputs[name] ?? ''),
        }));
        if (!fee || !net || !middle || !rate || !receive)
          throw new Error('The calculation lacks a step.');
        const [sourceDigits, destinationDigits] = [sourceCurrency, destinationCurrency].map(
          digitsOf,
        );

        const share = times(
          fee.of('source_amount'),
          divided(fee.of('basis_points'), fraction('10000')),
        );
        const { over, under } = rounded(share, sourceDigits ?? 0, 'up');
        const [fixed, minimum] = [fee.of('fixed'), fee.of('minimum')];
        const sum = { over: fixed.over + over, under };
        expect(fixed.under).toBe(under);
        expect(sameAs(fee.result, sum.over > minimum.over ? sum : minimum)).toBe(true);

        expect(net.result.over).toBe(net.of('source_amount').over - net.of('fee').over);

        if (isExchange) {
          const cross = divided(middle.of('destination_per_euro'), middle.of('source_per_euro'));
          const exact = rounded(cross, Math.max(0, decimalsFor(cross, 12)), 'even');
          expect(sameAs(middle.result, exact)).toBe(true);
        } else {
          expect(sameAs(middle.result, fraction('1'))).toBe(true);
        }

        const kept = {
          over: 10_000n - rate.of('basis_points').over,
          under: 10_000n,
        };
        const less = times(rate.of('mid_rate'), kept);
        expect(sameAs(rate.result, rounded(less, decimalsFor(less, 10), 'down'))).toBe(true);

        const reached = rounded(
          times(receive.of('net_amount'), receive.of('rate')),
          destinationDigits ?? 0,
          'down',
        );
        if (fixedSide === 'source') expect(sameAs(receive.result, reached)).toBe(true);
        else expect(reached.over).toBeGreaterThanOrEqual(receive.result.over);
      }),
      { numRuns: 3_000 },
    );
    expect(checked).toBeGreaterThan(1_000);
  });

  test('renders as the object that integrators receive', () => {
    const request = {
      sourceCurrency: 'USD',
      destinationCurrency: 'JPY',
      fixedSide: 'source',
      amount: 125_000n,
    } as const;
    const mid = crossMid('1.25', '170.005');
    const priced = price({ ...request, mid });
    if (isRefusal(priced)) throw new Error(priced.code);
    const market = rates.map((rate) => ({
      ...rate,
      perEuro: rate.currency === 'USD' ? '1.25' : '170.005',
      asOf: new Date('2026-11-20T15:00:00Z'),
    }));
    const idOf = (currency: string) => rates.find((rate) => rate.currency === currency)?.id ?? null;
    expect(parseMajor('1250', 'USD')).toBe(request.amount);
    expect(
      calculationObject(
        {
          ...{ ...request, ...priced, rate: formatRate(priced.rate), mid: formatRate(mid) },
          ...{ feeTermsId: 1n, spreadTermsId: 4n },
          ...{ sourceRateId: idOf('USD'), destinationRateId: idOf('JPY') },
        },
        rows,
        market,
      ),
    ).toMatchInlineSnapshot(`
      {
        "object": "calculation",
        "steps": [
          {
            "currency": "USD",
            "inputs": {
              "basis_points": "40",
              "fixed": "0.30",
              "minimum": "1.00",
              "source_amount": "1250.00",
              "terms": "terms_1",
            },
            "result": "5.30",
            "rule": "the larger of minimum and fixed + source_amount * basis_points / 10000, rounded up",
            "step": "fee",
          },
          {
            "currency": "USD",
            "inputs": {
              "fee": "5.30",
              "source_amount": "1250.00",
            },
            "result": "1244.70",
            "rule": "source_amount - fee",
            "step": "net_amount",
          },
          {
            "currency": null,
            "inputs": {
              "destination_as_of": "2026-11-20T15:00:00.000Z",
              "destination_per_euro": "170.005",
              "destination_provider": "reference",
              "destination_rate": "rate_4",
              "source_as_of": "2026-11-20T15:00:00.000Z",
              "source_per_euro": "1.25",
              "source_provider": "reference",
              "source_rate": "rate_2",
            },
            "result": "136.004",
            "rule": "destination_per_euro / source_per_euro, rounded half to even to 12 significant digits",
            "step": "mid_rate",
          },
          {
            "currency": null,
            "inputs": {
              "basis_points": "50",
              "mid_rate": "136.004",
              "terms": "terms_4",
            },
            "result": "135.32398",
            "rule": "mid_rate * (1 - basis_points / 10000), rounded down to 10 significant digits",
            "step": "rate",
          },
          {
            "currency": "JPY",
            "inputs": {
              "net_amount": "1244.70",
              "rate": "135.32398",
            },
            "result": "168437",
            "rule": "net_amount * rate, rounded down",
            "step": "receive_amount",
          },
        ],
      }
    `);
  });
});
