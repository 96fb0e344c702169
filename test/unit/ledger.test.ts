import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Acceptance } from '../../src/domain/acceptance.js';
import type { PayoutFact } from '../../src/domain/factEffect.js';
import { crossMid, parseRate } from '../../src/domain/fx.js';
import {
  acceptEntry,
  type Entry,
  fundEntry,
  latePaymentEntry,
  type Posting,
  releaseEntry,
  returnEntry,
  settleEntry,
  transfersOf,
} from '../../src/domain/ledger.js';
import type { PayoutStatus } from '../../src/domain/payout.js';
import { progressOf } from '../../src/domain/progress.js';
import type { FixedSide } from '../../src/domain/quote.js';
import { isRefusal } from '../../src/domain/refusal.js';
import { referenceSource } from '../../src/rates/reference.js';
import { decide as decideAcceptance } from '../assertions/decision.js';
import { amounts } from '../fixtures/acceptedAmounts.js';
import { findCorridor, price } from '../fixtures/corridors.js';

const { perEuro } = await referenceSource.fetch();
// Two, zero and three decimals; the rupiah makes rates small and amounts large.
const currencies = ['USD', 'EUR', 'JPY', 'KWD', 'IDR'] as const;
const customers = ['ada', 'bo'] as const;
type Customer = (typeof customers)[number];

function midOf(source: string, destination: string) {
  return crossMid(perEuro.get(source) ?? '', perEuro.get(destination) ?? '');
}

function shown(entry: Entry): readonly string[] {
  return entry.postings.map((p) => `${p.account} ${p.currency} ${p.amountMinor}`);
}

type Amounts = readonly (readonly [name: string, amountMinor: bigint])[];

/** Sums by name, without zero sums. */
function nonZero(amounts: Amounts): Readonly<Record<string, bigint>> {
  const sums = new Map<string, bigint>();
  for (const [name, minor] of amounts) sums.set(name, (sums.get(name) ?? 0n) + minor);
  return Object.fromEntries([...sums].filter(([, sum]) => sum !== 0n));
}

describe('an entry', () => {
  test.each<[string, Entry, readonly string[]]>([
    ['fund', fundEntry('USD', 5n), ['funding USD -5', 'available USD 5']],
    ['accept', acceptEntry(amounts), ['available USD -100000', 'held USD 100000']],
    [
      'settle',
      settleEntry(amounts),
      [
        'held USD -99570',
        'fx_position USD 99570',
        'held USD -430',
        'fee_revenue USD 430',
        'fx_position EUR -85201',
        'rail_settlement EUR 85201',
        'fx_position EUR -428',
        'spread_revenue EUR 428',
        'fx_position EUR -1',
        'rounding EUR 1',
      ],
    ],
    ['release', releaseEntry(amounts), ['held USD -100000', 'available USD 100000']],
    [
      'return',
      returnEntry(amounts, 85_001n),
      [
        'fx_position USD -99570',
        'available USD 99570',
        'rail_settlement EUR -85001',
        'fx_position EUR 85001',
        'return_costs EUR -200',
        'fx_position EUR 200',
        'spread_revenue EUR -428',
        'fx_position EUR 428',
        'rounding EUR -1',
        'fx_position EUR 1',
      ],
    ],
    [
      'late_payment',
      latePaymentEntry(amounts),
      ['suspense EUR -85201', 'rail_settlement EUR 85201'],
    ],
  ])('of kind %s has these postings', (kind, entry, postings) => {
    expect(entry.kind).toBe(kind);
    expect(shown(entry)).toEqual(postings);
  });

  test('has no zero legs: no margin within one currency, no cost of a full return', () => {
    const same = price({
      sourceCurrency: 'USD',
      destinationCurrency: 'USD',
      amount: 10_000n,
      fixedSide: 'source',
      mid: parseRate('1'),
    });
    if (isRefusal(same)) throw new Error('The price was refused');
    const alike = { ...same, sourceCurrency: 'USD', destinationCurrency: 'USD' };
    const accounts = (entry: Entry) => [...new Set(entry.postings.map(({ account }) => account))];
    expect(accounts(settleEntry(alike))).toEqual([
      'held',
      'fx_position',
      'fee_revenue',
      'rail_settlement',
    ]);
    expect(accounts(returnEntry(alike, alike.receiveMinor))).not.toContain('return_costs');
    expect(fundEntry('USD', 0n).postings).toEqual([]);
  });

  test.each<[string, () => Entry, string]>([
    ['funds less than nothing', () => fundEntry('USD', -1n), 'funding to available'],
    ['returns more than was sent', () => returnEntry(amounts, 85_202n), 'return_costs'],
    ['returns less than nothing', () => returnEntry(amounts, -1n), 'rail_settlement'],
    [
      'pays more than the rate gives',
      () => settleEntry({ ...amounts, receiveMinor: 85_203n }),
      'fx_position to rounding',
    ],
    [
      'gives more than the market',
      () => settleEntry({ ...amounts, midValueMinor: 85_201n }),
      'fx_position to spread_revenue',
    ],
  ])('that %s is a bug and throws', (_name, make, accounts) => {
    expect(make).toThrow(accounts);
    expect(make).toThrow('cannot be negative');
  });

  test('is stored as transfers, one for each pair of postings', () => {
    const moved = (entry: Entry) =>
      transfersOf(entry).map((t) => `${t.from} ${t.to} ${t.currency} ${t.amountMinor}`);
    expect(moved(acceptEntry(amounts))).toEqual([`available held USD ${amounts.sourceMinor}`]);
    expect(moved(settleEntry(amounts)).slice(0, 3)).toEqual([
      `held fx_position USD ${amounts.netMinor}`,
      `held fee_revenue USD ${amounts.feeMinor}`,
      `fx_position rail_settlement EUR ${amounts.receiveMinor}`,
    ]);
    const leg = (account: Posting['account'], amountMinor: bigint) => ({
      ...{ account, currency: 'EUR', amountMinor },
    });
    const postings = [leg('losses', -5n), leg('suspense', 2n), leg('rounding', 3n)];
    expect(moved({ kind: 'correction', postings })).toEqual([
      'losses suspense EUR 2',
      'losses rounding EUR 3',
    ]);
  });

  test('that does not balance is not stored', () => {
    const [first, ...others] = settleEntry(amounts).postings;
    if (first === undefined) throw new Error('The entry has no postings');
    const off = { ...first, amountMinor: first.amountMinor - 1n };
    for (const postings of [others, [off, ...others], [first], [first, ...others, first]]) {
      expect(() => transfersOf({ kind: 'settle', postings })).toThrow('does not balance in USD');
    }
  });

  test('moves the same amounts as transfers and as postings', () => {
    fc.assert(
      fc.property(requests, (request) => {
        const { sourceCurrency, destinationCurrency } = request;
        const priced = price({ ...request, mid: midOf(sourceCurrency, destinationCurrency) });
        fc.pre(!isRefusal(priced));
        if (isRefusal(priced)) return;
        const priceable = { ...priced, ...request };
        for (const entry of [settleEntry(priceable), returnEntry(priceable, 1n)]) {
          const sides = transfersOf(entry).flatMap(({ from, to, currency, amountMinor }) => [
            [`${from} ${currency}`, -amountMinor] as const,
            [`${to} ${currency}`, amountMinor] as const,
          ]);
          const postings = entry.postings.map(
            ({ account, currency, amountMinor }) =>
              [`${account} ${currency}`, amountMinor] as const,
          );
          expect(nonZero(sides)).toEqual(nonZero(postings));
          expect(transfersOf(entry)).toHaveLength(entry.postings.length / 2);
        }
      }),
      { numRuns: 200 },
    );
  });

  test('of a settlement and one of a full return together leave only the fee', () => {
    fc.assert(
      fc.property(requests, (request) => {
        const priced = price({
          ...request,
          mid: midOf(request.sourceCurrency, request.destinationCurrency),
        });
        fc.pre(!isRefusal(priced));
        if (isRefusal(priced)) return;
        const amounts = { ...priced, ...request };
        const entries = [
          acceptEntry(amounts),
          settleEntry(amounts),
          returnEntry(amounts, amounts.receiveMinor),
        ];
        const left = entries
          .flatMap(({ postings }) => postings)
          .map(
            (posting) => [`${posting.account} ${posting.currency}`, posting.amountMinor] as const,
          );
        const source = request.sourceCurrency;
        expect(nonZero(left)).toEqual({
          [`available ${source}`]: -amounts.feeMinor,
          [`fee_revenue ${source}`]: amounts.feeMinor,
        });
      }),
      { numRuns: 500 },
    );
  });
});

type OwnedPosting = Posting & { readonly customer: Customer };

function balanceName({ customer: name, account, currency: code }: OwnedPosting): string {
  const isCustomers = account === 'available' || account === 'held';
  return `${isCustomers ? name : 'we'} ${account} ${code}`;
}

type Payout = {
  readonly customer: Customer;
  readonly amounts: Acceptance;
  status: PayoutStatus;
  returnedMinor: bigint | null;
  /** Whether the rail paid after the hold was released. */
  isLate: boolean;
};

/** The books as the database keeps them: balances besides postings, and no customer's balance below zero. */
class Books {
  readonly postings: OwnedPosting[] = [];
  readonly entries: Entry[] = [];
  readonly payouts: Payout[] = [];
  balances: ReadonlyMap<string, bigint> = new Map();

  available(name: Customer, code: string): bigint {
    return this.balances.get(`${name} available ${code}`) ?? 0n;
  }

  post(name: Customer, entry: Entry): void {
    const owned = entry.postings.map((posting) => ({ ...posting, customer: name }));
    const balances = new Map(this.balances);
    for (const posting of owned) {
      const key = balanceName(posting);
      balances.set(key, (balances.get(key) ?? 0n) + posting.amountMinor);
    }
    for (const [key, balance] of balances) {
      if (!key.startsWith('we ') && balance < 0n) throw new Error(`${key} would be ${balance}`);
    }
    this.balances = balances;
    this.entries.push(entry);
    this.postings.push(...owned);
  }
}

/** The customers' deposits. Every balance follows from these and from the states of the payouts. */
type Model = { readonly funded: (readonly [Customer, string, bigint])[] };

/** A payout's postings so far, derived from its status alone. Spread and rounding form one margin. */
function movedBy({ customer: name, amounts, ...payout }: Payout): Amounts {
  const { sourceMinor, feeMinor, netMinor, receiveMinor, midValueMinor } = amounts;
  const source = amounts.sourceCurrency;
  const destination = amounts.destinationCurrency;
  const kept = receiveMinor - (payout.returnedMinor ?? 0n);
  switch (payout.status) {
    case 'pending':
      return [];
    case 'processing':
    case 'sent':
      return [
        [`${name} available ${source}`, -sourceMinor],
        [`${name} held ${source}`, sourceMinor],
      ];
    case 'settled':
      return [
        [`${name} available ${source}`, -sourceMinor],
        [`we fee_revenue ${source}`, feeMinor],
        [`we fx_position ${source}`, netMinor],
        [`we fx_position ${destination}`, -midValueMinor],
        [`we margin ${destination}`, midValueMinor - receiveMinor],
        [`we rail_settlement ${destination}`, receiveMinor],
      ];
    case 'returned':
      return [
        [`${name} available ${source}`, -feeMinor],
        [`we fee_revenue ${source}`, feeMinor],
        [`we return_costs ${destination}`, -kept],
        [`we rail_settlement ${destination}`, kept],
      ];
    case 'failed':
    case 'canceled':
      return payout.isLate
        ? [
            [`we suspense ${destination}`, -receiveMinor],
            [`we rail_settlement ${destination}`, receiveMinor],
          ]
        : [];
  }
}

/** The invariants that hold after every operation. */
function check({ funded }: Model, { entries, postings, payouts, balances }: Books): void {
  // Conservation: no entry creates or loses money in any currency, and none has zero postings.
  const unsound = entries.filter(({ postings: legs }) => {
    const sums = nonZero(legs.map(({ currency: code, amountMinor }) => [code, amountMinor]));
    return Object.keys(sums).length > 0 || legs.some(({ amountMinor }) => amountMinor === 0n);
  });
  expect(unsound).toEqual([]);
  // A balance is the sum of its postings.
  const derived = postings.map((posting) => [balanceName(posting), posting.amountMinor] as const);
  expect(nonZero([...balances])).toEqual(nonZero(derived));
  // No customer has a negative balance, neither available nor held.
  const overdrawn = [...balances].filter(([name, sum]) => !name.startsWith('we ') && sum < 0n);
  expect(overdrawn).toEqual([]);
  // Held funds are the cost of the open payouts, spent funds that of the others, and our earnings,
  // payments and losses result from these too.
  const margins = [...balances].filter(([name]) => /^we (?:spread_revenue|rounding) /.test(name));
  expect(margins.filter(([, margin]) => margin < 0n)).toEqual([]);
  const merged = [...balances].map(
    ([name, sum]) => [name.replace(/spread_revenue|rounding/, 'margin'), sum] as const,
  );
  const put = funded.flatMap(
    ([name, code, minor]): Amounts => [
      [`${name} available ${code}`, minor],
      [`we funding ${code}`, -minor],
    ],
  );
  expect(nonZero(merged)).toEqual(nonZero([...put, ...payouts.flatMap(movedBy)]));
}

type Operation = fc.Command<Model, Books>;

class Fund implements Operation {
  readonly #customer: Customer;
  readonly #currency: string;
  readonly #amountMinor: bigint;

  constructor(customer: Customer, currency: string, amountMinor: bigint) {
    this.#customer = customer;
    this.#currency = currency;
    this.#amountMinor = amountMinor;
  }
  check = () => true;
  run(model: Model, books: Books): void {
    books.post(this.#customer, fundEntry(this.#currency, this.#amountMinor));
    model.funded.push([this.#customer, this.#currency, this.#amountMinor]);
    check(model, books);
  }
  toString = () => `fund ${this.#customer} ${this.#amountMinor} ${this.#currency}`;
}

type Request = {
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly fixedSide: FixedSide;
  readonly amount: bigint;
};

class Accept implements Operation {
  readonly #customer: Customer;
  readonly #request: Request;

  constructor(who: Customer, request: Request) {
    this.#customer = who;
    this.#request = request;
  }
  check = () => true;
  run(model: Model, books: Books): void {
    const { sourceCurrency, destinationCurrency } = this.#request;
    const decide = (availableOf: (code: string) => bigint) =>
      decideAcceptance(
        { ...this.#request, quoteId: null, beneficiaryId: 'bnf_1', batchId: null, ageMs: 0 },
        {
          quote: undefined,
          beneficiary: { currency: destinationCurrency, since: new Date(0), ageMs: 1n },
          openings: [],
          pairOf: (source, destination) => ({
            mid: midOf(source, destination),
            corridor: findCorridor(source, destination),
          }),
          availableOf,
        },
      );
    const decided = decide((code) => books.available(this.#customer, code));
    if (!isRefusal(decided)) {
      books.post(this.#customer, acceptEntry(decided));
      const fresh = { status: 'processing', returnedMinor: null, isLate: false } as const;
      books.payouts.push({ customer: this.#customer, amounts: decided, ...fresh });
    } else if (decided.code === 'insufficient_funds') {
      // The books also refuse what the decision has refused, and remain unchanged.
      const affordable = decide(() => 10n ** 18n);
      if (isRefusal(affordable)) throw new Error(`Only funds were missing: ${affordable.code}`);
      const { balances, entries } = books;
      const entryCount = entries.length;
      expect(() => books.post(this.#customer, acceptEntry(affordable))).toThrow(
        `${this.#customer} available ${sourceCurrency} would be -`,
      );
      expect([books.balances, books.entries.length]).toEqual([balances, entryCount]);
    }
    check(model, books);
  }
  toString = () => {
    const { amount, sourceCurrency, destinationCurrency, fixedSide } = this.#request;
    return `accept ${this.#customer} ${amount} ${sourceCurrency} → ${destinationCurrency} (${fixedSide})`;
  };
}

/** What the rail may report about a payout. Amounts are shares of the submitted amount. */
type Report =
  | 'accept'
  | 'settle'
  | 'fail'
  | 'cancel'
  | 'return'
  | 'return short'
  | 'another amount';

class HandleReport implements Operation {
  readonly #which: number;
  readonly #report: Report;

  constructor(which: number, report: Report) {
    this.#which = which;
    this.#report = report;
  }
  check = () => true;
  run(model: Model, books: Books): void {
    const payout = books.payouts[this.#which % Math.max(1, books.payouts.length)];
    if (payout === undefined) return;
    const state = { attentionReason: null, voidIntent: null, corrected: 'nothing' } as const;
    const progress = progressOf(
      { ...payout.amounts, ...payout, ...state },
      [this.#factFor(payout)],
      { returnMinimumPercent: 0n },
    );
    if (this.#report === 'another amount') {
      expect([progress.entries, progress.moves]).toEqual([[], []]);
    }
    for (const entry of progress.entries) {
      // The database stores one late payment per payout; see the unique key of its entries.
      if (entry.kind === 'late_payment' && payout.isLate) continue;
      books.post(payout.customer, entry);
      payout.isLate ||= entry.kind === 'late_payment';
    }
    for (const { status, returnedMinor } of progress.moves) {
      Object.assign(payout, { status, returnedMinor });
    }
    check(model, books);
  }
  #factFor({ amounts }: Payout): PayoutFact {
    const { receiveMinor, destinationCurrency: currency } = amounts;
    const because = { code: 'AC04', reason: 'Closed account' };
    switch (this.#report) {
      case 'accept':
        return { kind: 'accepted', reference: null };
      case 'settle':
        return { kind: 'settled', amountMinor: receiveMinor, currency };
      case 'another amount':
        return { kind: 'settled', amountMinor: receiveMinor + 1n, currency };
      case 'fail':
        return { kind: 'rejected', ...because };
      case 'cancel':
        return { kind: 'withdrawn' };
      case 'return':
        return { kind: 'returned', amountMinor: receiveMinor, currency, ...because };
      case 'return short':
        return { kind: 'returned', amountMinor: (receiveMinor + 1n) / 2n, currency, ...because };
    }
  }
  toString = () => `${this.#report} (payout ${this.#which})`;
}

const customer = fc.constantFrom(...customers);
const currency = fc.constantFrom(...currencies);
/** Amounts of about 1 to 50 US dollars in every currency, so that some can be paid and some cannot. */
const amount = fc.record({ dollars: fc.bigInt(1n, 50n), odd: fc.bigInt(0n, 99n) });
type Amount = { readonly dollars: bigint; readonly odd: bigint };

function minorOf({ dollars, odd }: Amount, code: string): bigint {
  return dollars * (findCorridor(code, code)?.fee.minimumMinor ?? 0n) + odd;
}

const requests: fc.Arbitrary<Request> = fc
  .record({
    sourceCurrency: currency,
    destinationCurrency: currency,
    fixedSide: fc.constantFrom<FixedSide>('source', 'destination'),
    sum: amount,
  })
  .map(({ sum, ...rest }) => {
    const { fixedSide, sourceCurrency, destinationCurrency } = rest;
    const fixed = fixedSide === 'source' ? sourceCurrency : destinationCurrency;
    return { ...rest, amount: minorOf(sum, fixed) };
  });
const reports: readonly Report[] = [
  'accept',
  'settle',
  'fail',
  'cancel',
  'return',
  'return short',
  'another amount',
];

test('after any operations every currency sums to zero, no balance is negative, and refusals change nothing', () => {
  const seen = new Map<string, number>();
  const fund = fc
    .tuple(customer, currency, amount)
    .map(([who, code, sum]) => new Fund(who, code, minorOf(sum, code)));
  const accept = fc.tuple(customer, requests).map((args) => new Accept(...args));
  const handle = fc
    .tuple(fc.nat({ max: 9 }), fc.constantFrom(...reports))
    .map((args) => new HandleReport(...args));
  // Reports outnumber new payouts, and only a part of the requests can be paid.
  const operations = [fund, accept, accept, handle, handle, handle];
  fc.assert(
    fc.property(fc.commands(operations, { maxCommands: 60, size: 'max' }), (commands) => {
      const books = new Books();
      fc.modelRun(() => ({ model: { funded: [] }, real: books }), commands);
      for (const { kind } of books.entries) seen.set(kind, (seen.get(kind) ?? 0) + 1);
    }),
    { numRuns: 150 },
  );
  // If an operation never succeeded, the model would prove nothing.
  for (const kind of ['fund', 'accept', 'settle', 'release', 'return', 'late_payment']) {
    expect(seen.get(kind) ?? 0, kind).toBeGreaterThan(0);
  }
  // Thousands of operations take a second or two, but much longer next to other work.
}, 60_000);
