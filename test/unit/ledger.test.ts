import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Acceptance, decide } from '../../src/domain/acceptance.js';
import { findCorridor } from '../../src/domain/corridor.js';
import { crossMid, parseRate } from '../../src/domain/fx.js';
import {
  acceptEntry,
  type Entry,
  type FrozenAmounts,
  fundEntry,
  latePaymentEntry,
  type Posting,
  releaseEntry,
  returnEntry,
  settleEntry,
} from '../../src/domain/ledger.js';
import type { PayoutStatus, RailFact } from '../../src/domain/payout.js';
import { progressOf } from '../../src/domain/progress.js';
import { type FixedSide, price } from '../../src/domain/quote.js';
import { isRefusal } from '../../src/domain/refusal.js';
import { referenceSource } from '../../src/rates/reference.js';

const { perEuro } = await referenceSource.fetch();
// Two, no and three decimals; the rupiah makes the rates small and the amounts large.
const currencies = ['USD', 'EUR', 'JPY', 'KWD', 'IDR'] as const;
const customers = ['ada', 'bo'] as const;
type Customer = (typeof customers)[number];

function midOf(source: string, destination: string) {
  return crossMid(perEuro.get(source) ?? '', perEuro.get(destination) ?? '');
}

function shown(entry: Entry): readonly string[] {
  return entry.postings.map((p) => `${p.account} ${p.currency} ${p.amountMinor}`);
}

/** Adds up; the order of the postings does not matter. */
function sumsOf(
  postings: readonly Posting[],
  nameOf: (posting: Posting) => string,
): ReadonlyMap<string, bigint> {
  const sums = new Map<string, bigint>();
  for (const posting of postings) {
    const name = nameOf(posting);
    sums.set(name, (sums.get(name) ?? 0n) + posting.amountMinor);
  }
  return sums;
}

const byAccount = ({ account, currency }: Posting) => `${account} ${currency}`;
const byCurrency = ({ currency }: Posting) => currency;

/** 1,000.00 USD at a mid rate of 0.86, with one cent that flooring has left over. */
const frozen: FrozenAmounts = {
  sourceCurrency: 'USD',
  destinationCurrency: 'EUR',
  sourceMinor: 100_000n,
  feeMinor: 430n,
  netMinor: 99_570n,
  receiveMinor: 85_201n,
  midValueMinor: 85_630n,
  rate: parseRate('0.8557'),
};

describe('an entry', () => {
  test.each<[string, Entry, readonly string[]]>([
    ['fund', fundEntry('USD', 5n), ['funding USD -5', 'available USD 5']],
    ['accept', acceptEntry(frozen), ['available USD -100000', 'held USD 100000']],
    [
      'settle',
      settleEntry(frozen),
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
    ['release', releaseEntry(frozen), ['held USD -100000', 'available USD 100000']],
    [
      'return',
      returnEntry(frozen, 85_001n),
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
      latePaymentEntry(frozen),
      ['suspense EUR -85201', 'rail_settlement EUR 85201'],
    ],
  ])('of kind %s has these postings', (kind, entry, postings) => {
    expect(entry.kind).toBe(kind);
    expect(shown(entry)).toEqual(postings);
  });

  test('drops the legs of zero: no margin within one currency, no cost of a full return', () => {
    const same = price({
      sourceCurrency: 'USD',
      destinationCurrency: 'USD',
      amount: 10_000n,
      fixedSide: 'source',
      mid: undefined,
    });
    if (isRefusal(same)) throw new Error('It was refused');
    const alike = { ...same, sourceCurrency: 'USD', destinationCurrency: 'USD' };
    const accounts = (entry: Entry) => [...sumsOf(entry.postings, ({ account }) => account).keys()];
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
    ['returns more than was sent', () => returnEntry(frozen, 85_202n), 'return_costs'],
    ['returns less than nothing', () => returnEntry(frozen, -1n), 'rail_settlement'],
    [
      'pays more than the rate gives',
      () => settleEntry({ ...frozen, receiveMinor: 85_203n }),
      'fx_position to rounding',
    ],
    [
      'gives more than the market',
      () => settleEntry({ ...frozen, midValueMinor: 85_201n }),
      'fx_position to spread_revenue',
    ],
  ])('that %s is a bug and throws', (_name, make, accounts) => {
    expect(make).toThrow(accounts);
    expect(make).toThrow('cannot be negative');
  });

  test('pair of settlement and full return leaves the fee and nothing else', () => {
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
        const left = sumsOf(
          entries.flatMap(({ postings }) => postings),
          byAccount,
        );
        const source = request.sourceCurrency;
        expect(Object.fromEntries([...left].filter(([, sum]) => sum !== 0n))).toEqual({
          [`available ${source}`]: -amounts.feeMinor,
          [`fee_revenue ${source}`]: amounts.feeMinor,
        });
      }),
      { numRuns: 500 },
    );
  });
});

/** The books as the database keeps them: balances beside postings, and none below zero. */
class Books {
  readonly entries: { readonly customer: Customer; readonly entry: Entry }[] = [];
  readonly payouts: Payout[] = [];
  balances: ReadonlyMap<string, bigint> = new Map();

  balanceOf(customer: Customer, account: string, currency: string): bigint {
    return this.balances.get(`${customer}'s ${account} ${currency}`) ?? 0n;
  }

  /** What all customers and the service have on an account, in every currency. */
  totalsOf(account: string): Readonly<Record<string, bigint>> {
    return nonZero(
      this.entries
        .flatMap(({ entry }) => entry.postings)
        .filter((posting) => posting.account === account)
        .map(({ currency, amountMinor }) => [currency, amountMinor]),
    );
  }

  post(customer: Customer, entry: Entry): void {
    const balances = new Map(this.balances);
    for (const { account, currency, amountMinor } of entry.postings) {
      const isCustomers = account === 'available' || account === 'held';
      const name = `${isCustomers ? `${customer}'s` : 'our'} ${account} ${currency}`;
      const balance = (balances.get(name) ?? 0n) + amountMinor;
      balances.set(name, balance);
    }
    for (const [name, balance] of balances) {
      if (name.includes("'s") && balance < 0n) throw new Error(`${name} would fall to ${balance}`);
    }
    this.balances = balances;
    this.entries.push({ customer, entry });
  }
}

type Payout = {
  readonly customer: Customer;
  readonly frozen: Acceptance;
  status: PayoutStatus;
  returnedMinor: bigint | null;
  /** Whether the rail paid after the hold was released. */
  isLate: boolean;
};

/** What customers have put in; everything else follows from the payouts. */
type Model = { readonly funded: Map<string, bigint> };

function nonZero(
  amounts: readonly (readonly [string, bigint])[],
): Readonly<Record<string, bigint>> {
  const sums = new Map<string, bigint>();
  for (const [name, amount] of amounts) sums.set(name, (sums.get(name) ?? 0n) + amount);
  return Object.fromEntries([...sums].filter(([, sum]) => sum !== 0n));
}

function snapshot({ entries, balances, payouts }: Books): string {
  return JSON.stringify([entries, [...balances], payouts], (_key, value: unknown) =>
    typeof value === 'bigint' ? `${value}` : value,
  );
}

const isOpen = ({ status }: Payout) => status === 'processing' || status === 'sent';
const isPaid = ({ status }: Payout) => status === 'settled' || status === 'returned';

/** The invariants that hold after every operation, whatever it was. */
function check({ funded }: Model, books: Books): void {
  const { entries, balances, payouts } = books;
  // Conservation: no entry makes or loses money in any currency.
  const isWrong = ({ postings }: Entry) =>
    postings.some(({ amountMinor }) => amountMinor === 0n) ||
    [...sumsOf(postings, byCurrency).values()].some((sum) => sum !== 0n);
  expect(entries.filter(({ entry }) => isWrong(entry))).toEqual([]);
  // A balance is the sum of its postings, and a customer's is never below zero.
  const derived = entries.flatMap(({ customer, entry }) =>
    entry.postings.map(({ account, currency, amountMinor }) => {
      const owner = account === 'available' || account === 'held' ? `${customer}'s` : 'our';
      return [`${owner} ${account} ${currency}`, amountMinor] as const;
    }),
  );
  expect(nonZero([...balances])).toEqual(nonZero(derived));
  for (const customer of customers) {
    for (const currency of currencies) {
      const own = payouts.filter(
        (payout) => payout.customer === customer && payout.frozen.sourceCurrency === currency,
      );
      const sum = (list: readonly Payout[], amount: (frozen: Acceptance) => bigint) =>
        list.reduce((total, payout) => total + amount(payout.frozen), 0n);
      const held = sum(own.filter(isOpen), (amounts) => amounts.sourceMinor);
      // What is held is what the open payouts will cost.
      expect(books.balanceOf(customer, 'held', currency)).toBe(held);
      const settled = own.filter(({ status }) => status === 'settled');
      const returned = own.filter(({ status }) => status === 'returned');
      const spent =
        sum(settled, (amounts) => amounts.sourceMinor) +
        sum(returned, (amounts) => amounts.feeMinor);
      const available = (funded.get(`${customer} ${currency}`) ?? 0n) - held - spent;
      // No overdraft: nobody spends more than was put in.
      expect(available).toBeGreaterThanOrEqual(0n);
      expect(books.balanceOf(customer, 'available', currency)).toBe(available);
    }
  }
  checkOurs(books);
}

/** What the service itself has earned, paid and lost follows from the payouts alone. */
function checkOurs(books: Books): void {
  const paid = books.payouts.filter(isPaid);
  const settled = paid.filter(({ status }) => status === 'settled');
  const returned = paid.filter(({ status }) => status === 'returned');
  const late = books.payouts.filter(({ isLate }) => isLate);
  const atSource = (list: readonly Payout[], amount: (payout: Payout) => bigint) =>
    nonZero(list.map((payout) => [payout.frozen.sourceCurrency, amount(payout)]));
  const atDestination = (list: readonly Payout[], amount: (payout: Payout) => bigint) =>
    nonZero(list.map((payout) => [payout.frozen.destinationCurrency, amount(payout)]));
  const keptOf = (payout: Payout) => payout.frozen.receiveMinor - (payout.returnedMinor ?? 0n);

  expect(books.totalsOf('fee_revenue')).toEqual(atSource(paid, (p) => p.frozen.feeMinor));
  // Spread and rounding are what the market would have given beyond what arrived.
  const margins = [
    ...Object.entries(books.totalsOf('spread_revenue')),
    ...Object.entries(books.totalsOf('rounding')),
  ];
  for (const [, margin] of margins) expect(margin).toBeGreaterThan(0n);
  expect(nonZero(margins)).toEqual(
    atDestination(settled, ({ frozen: f }) => f.midValueMinor - f.receiveMinor),
  );
  expect(books.totalsOf('return_costs')).toEqual(atDestination(returned, (p) => -keptOf(p)));
  expect(books.totalsOf('suspense')).toEqual(atDestination(late, (p) => -p.frozen.receiveMinor));
  expect(books.totalsOf('rail_settlement')).toEqual(
    nonZero([
      ...Object.entries(atDestination(paid, keptOf)),
      ...Object.entries(atDestination(late, (p) => p.frozen.receiveMinor)),
    ]),
  );
  expect(books.totalsOf('fx_position')).toEqual(
    nonZero([
      ...Object.entries(atSource(settled, (p) => p.frozen.netMinor)),
      ...Object.entries(atDestination(settled, (p) => -p.frozen.midValueMinor)),
    ]),
  );
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
    const name = `${this.#customer} ${this.#currency}`;
    model.funded.set(name, (model.funded.get(name) ?? 0n) + this.#amountMinor);
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

  constructor(customer: Customer, request: Request) {
    this.#customer = customer;
    this.#request = request;
  }
  check = () => true;
  run(model: Model, books: Books): void {
    const { sourceCurrency, destinationCurrency } = this.#request;
    const decided = decide(
      { ...this.#request, quoteId: null, beneficiaryId: 'bnf_1', batchId: null, ageMs: 0 },
      {
        quote: undefined,
        beneficiary: { currency: destinationCurrency },
        midOf,
        availableOf: (currency) => books.balanceOf(this.#customer, 'available', currency),
      },
    );
    if (isRefusal(decided)) {
      const available = books.balanceOf(this.#customer, 'available', sourceCurrency);
      if (decided.code === 'insufficient_funds') this.#mustNotFit(available, books);
    } else {
      books.post(this.#customer, acceptEntry(decided));
      books.payouts.push({
        customer: this.#customer,
        frozen: decided,
        status: 'processing',
        returnedMinor: null,
        isLate: false,
      });
    }
    check(model, books);
  }
  /** The books themselves refuse what the decision has refused, and stay as they were. */
  #mustNotFit(available: bigint, books: Books): void {
    const priced = price({
      ...this.#request,
      mid: midOf(this.#request.sourceCurrency, this.#request.destinationCurrency),
    });
    if (isRefusal(priced)) throw new Error('A price that was refused needs no funds.');
    expect(priced.sourceMinor).toBeGreaterThan(available);
    const before = snapshot(books);
    expect(() => {
      books.post(this.#customer, acceptEntry({ ...this.#request, ...priced }));
    }).toThrow('would fall');
    expect(snapshot(books)).toBe(before);
  }
  toString = () => {
    const { amount, sourceCurrency, destinationCurrency, fixedSide } = this.#request;
    return `accept ${this.#customer} ${amount} ${sourceCurrency} → ${destinationCurrency} (${fixedSide})`;
  };
}

/** What the rail may say of a payout; amounts as a share of what it was given. */
type Told = 'accept' | 'settle' | 'fail' | 'cancel' | 'return' | 'return short' | 'another amount';

class Hear implements Operation {
  readonly #which: number;
  readonly #told: Told;

  constructor(which: number, told: Told) {
    this.#which = which;
    this.#told = told;
  }
  check = () => true;
  run(model: Model, books: Books): void {
    const payout = books.payouts[this.#which % Math.max(1, books.payouts.length)];
    if (payout === undefined) return;
    const before = snapshot(books);
    const progress = progressOf({ ...payout.frozen, ...payout }, [this.#factFor(payout)]);
    for (const entry of progress.entries) {
      // The database keeps one late payment for a payout; see the unique key of its entries.
      if (entry.kind === 'late_payment' && payout.isLate) continue;
      books.post(payout.customer, entry);
      if (entry.kind === 'late_payment') payout.isLate = true;
    }
    for (const move of progress.moves) {
      payout.status = move.status;
      payout.returnedMinor = move.returnedMinor;
    }
    if (progress.entries.length === 0 && progress.moves.length === 0) {
      expect(snapshot(books)).toBe(before);
    }
    check(model, books);
  }
  #factFor({ frozen: amounts }: Payout): RailFact {
    const { receiveMinor, destinationCurrency: currency } = amounts;
    const because = { code: 'AC04', reason: 'Closed account' };
    switch (this.#told) {
      case 'accept':
        return { kind: 'accepted', reference: null };
      case 'settle':
        return { kind: 'settled', amountMinor: receiveMinor, currency };
      case 'another amount':
        return { kind: 'settled', amountMinor: receiveMinor + 1n, currency };
      case 'fail':
        return { kind: 'rejected', ...because };
      case 'cancel':
        return { kind: 'voided', outcome: 'canceled', code: 'canceled' };
      case 'return':
        return { kind: 'returned', amountMinor: receiveMinor, currency, ...because };
      case 'return short':
        return { kind: 'returned', amountMinor: (receiveMinor + 1n) / 2n, currency, ...because };
    }
  }
  toString = () => `${this.#told} (payout ${this.#which})`;
}

const customer = fc.constantFrom(...customers);
const currency = fc.constantFrom(...currencies);
/** Amounts of about 1 to 50 US dollars in every currency, so that some fit and some do not. */
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
  .map(({ sum, ...asked }) => {
    const { fixedSide, sourceCurrency, destinationCurrency } = asked;
    const fixed = fixedSide === 'source' ? sourceCurrency : destinationCurrency;
    return { ...asked, amount: minorOf(sum, fixed) };
  });
const told: readonly Told[] = [
  'accept',
  'settle',
  'fail',
  'cancel',
  'return',
  'return short',
  'another amount',
];

test('after any operations every currency adds up, nobody overdraws, and refusals change nothing', () => {
  const seen = new Map<string, number>();
  const fund = fc
    .tuple(customer, currency, amount)
    .map(([who, code, sum]) => new Fund(who, code, minorOf(sum, code)));
  const accept = fc.tuple(customer, requests).map((args) => new Accept(...args));
  const hear = fc
    .tuple(fc.nat({ max: 9 }), fc.constantFrom(...told))
    .map((args) => new Hear(...args));
  // Of a payout is heard more often than one is made, and little of what is asked can be paid.
  const operations = [fund, accept, accept, hear, hear, hear];
  fc.assert(
    fc.property(fc.commands(operations, { maxCommands: 60, size: 'max' }), (commands) => {
      const books = new Books();
      fc.modelRun(() => ({ model: { funded: new Map() }, real: books }), commands);
      for (const { entry } of books.entries) seen.set(entry.kind, (seen.get(entry.kind) ?? 0) + 1);
    }),
    { numRuns: 200 },
  );
  // A model that never gets anywhere would prove nothing.
  for (const kind of ['fund', 'accept', 'settle', 'release', 'return', 'late_payment']) {
    expect(seen.get(kind) ?? 0, kind).toBeGreaterThan(0);
  }
});
