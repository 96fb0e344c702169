import type {
  RailEvent,
  RailReport,
  Statement,
  StatementLine,
} from '../../src/domain/railReport.js';
import type {
  LookupAnswer,
  Rail,
  RailLimits,
  SubmitAnswer,
  Transfer,
} from '../../src/rails/rail.js';

/**
 * A scripted bank in this process that behaves as badly as the port allows. It forgets keys when
 * their retention is over and would then pay a second time, loses answers, accepts orders late,
 * calls a key a duplicate, and sends callbacks that contradict its books. Only its books never lie:
 * a lookup, a void and a closed statement are true as long as the key is remembered. It pays
 * by its deadline, counted from the acceptance of the order.
 */

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;

/** How the bank treats a submission, and what the caller learns about it. */
export const submitManners = [
  'taken', // accepted, and answered "accepted"
  'refused', // rejected; a key that the bank already has is rejected as a duplicate instead
  'lost', // accepted, but the connection breaks
  'unsaid', // accepted, but answered "unknown"
  'late', // in flight: the bank accepts it later
  'dropped', // never arrives
] as const;
export type SubmitManner = (typeof submitManners)[number];

/** `blind`: the lookup lags behind and has not found the key yet. */
export const lookupManners = ['true', 'blind', 'fails'] as const;
export type LookupManner = (typeof lookupManners)[number];

/** `lost`: the key is voided, but the connection breaks. */
export const voidManners = ['true', 'fails', 'lost'] as const;
export type VoidManner = (typeof voidManners)[number];

/** How the rail treats one attempt of an activity. */
export type Manners = {
  readonly submit?: SubmitManner;
  readonly lookup?: LookupManner;
  readonly void?: VoidManner;
  /** Awaited by each call after the bank has done its part and before the caller gets the result. */
  readonly hold?: (call: RailCall) => Promise<void>;
};

export type RailCall = 'submit' | 'lookup' | 'void' | 'statement';

/** What the bank may do with an order on its own initiative. */
export const bankActs = [
  'pays',
  'paysMore',
  'rejects',
  'misreports',
  'callsDuplicate',
  'returnsAll',
  'returnsMost',
  'returnsHalf',
  'returnsOne',
  'takesLate',
] as const;
export type BankAct = (typeof bankActs)[number];

/** What the bank does at its deadline with an order that it has accepted, unless told otherwise. */
export type Fate = 'pays' | 'dies';

type Order = {
  readonly transfer: Transfer;
  readonly deadlineMs: number;
  state: 'open' | 'paid' | 'rejected' | 'dead';
  code: string;
  paidMinor: bigint;
  paidAt: string | undefined;
  returnedMinor: bigint;
};

/** A call that the bank received. Recorded in order, for people who debug a counterexample. */
export type Asked = { readonly call: RailCall; readonly keys: readonly string[] };

export class ScriptedBank {
  readonly limits: RailLimits;
  /** Maximum time after a call for its order to arrive; later it never does. */
  readonly inFlightMs = 30 * minuteMs;
  /** Delay between the end of a day and the closing of its statement. */
  readonly closesAfterMs: number;
  readonly asked: Asked[] = [];
  /**
   * Payments whose statement line has no usable key, so that the debit names no payout. Only its amount
   * can identify the payment, so the amount is always correct.
   */
  readonly garbled = new Set<string>();
  /** Payments that the bank books under another order's key. */
  readonly bookedAs = new Map<string, string>();
  /** Days (YYYY-MM-DD) whose statements stay open while those of later days are closed. */
  readonly leftOpen = new Set<string>();
  readonly fates = new Map<string, Fate>();
  /** Keys whose lookup answer cannot be read: every lookup that includes one of them fails as a whole. */
  readonly unreadable = new Set<string>();

  readonly #orders: Order[] = [];
  readonly #memory = new Map<
    string,
    { readonly order: Order | undefined; readonly since: number }
  >();
  readonly #inFlight: { readonly transfer: Transfer; readonly untilMs: number }[] = [];
  readonly #bookings: StatementLine[] = [];
  readonly #notices: RailEvent[] = [];
  #references = 0;

  constructor({ closesAfterMs = 0, keyRetentionMs = dayMs } = {}) {
    this.closesAfterMs = closesAfterMs;
    // Same as the sandbox bank's limits, except for a small bulk size, so that a chunk takes several calls.
    this.limits = { bulkSize: 5, keyRetentionMs, settleWithinMs: 5 * dayMs };
  }

  /** The rail port as one attempt of an activity sees it. */
  rail(manners: Manners = {}): Rail {
    const { submit = 'taken', lookup = 'true', void: voided = 'true' } = manners;
    const hold = manners.hold ?? (async () => undefined);
    const record = (call: RailCall, keys: readonly string[]) => this.asked.push({ call, keys });
    return {
      name: 'sandbox',
      limits: this.limits,
      submit: async (transfers) => {
        record(
          'submit',
          transfers.map(({ key }) => key),
        );
        const outcomes = transfers.map((transfer) => this.#submit(transfer, submit));
        await hold('submit');
        if (submit === 'lost') throw new Error('The connection broke after the order was sent.');
        return outcomes;
      },
      lookup: async (keys) => {
        record('lookup', keys);
        if (lookup === 'fails' || keys.some((key) => this.unreadable.has(key))) {
          throw new Error('The look-up cannot be read.');
        }
        const answers = keys.map(
          (key): LookupAnswer =>
            lookup === 'blind' ? { key, kind: 'not_found' } : this.#lookup(key),
        );
        await hold('lookup');
        return answers;
      },
      voidKey: async (key) => {
        record('void', [key]);
        if (voided === 'fails') throw new Error('The void did not arrive.');
        const outcome = this.#void(key);
        await hold('void');
        if (voided === 'lost') throw new Error('The connection broke after the void was sent.');
        return outcome;
      },
      statement: async (date) => {
        record('statement', [date]);
        const statement = this.#statement(date);
        await hold('statement');
        return statement;
      },
    };
  }

  /** All payments that the bank really made under a key, whatever it reports. */
  paymentsOf(key: string): readonly StatementLine[] {
    return this.#bookings.filter((line) => line.direction === 'debit' && line.key === key);
  }

  returnedOf(key: string): bigint {
    return this.#orders
      .filter(({ transfer }) => transfer.key === key)
      .reduce((sum, { returnedMinor }) => sum + returnedMinor, 0n);
  }

  hasRejected(key: string): boolean {
    return this.#orders.some((o) => o.transfer.key === key && o.state === 'rejected');
  }

  /** Makes the bank do something with an order of the key; returns false if that is impossible. */
  act(key: string, act: BankAct): boolean {
    if (act === 'takesLate') return this.#arrive(key);
    const wanted = act.startsWith('returns') ? 'paid' : 'open';
    const order = this.#orders.find((o) => o.transfer.key === key && o.state === wanted);
    if (order === undefined) return false;
    const { amountMinor, currency } = order.transfer;
    switch (act) {
      case 'pays':
        this.#pay(order, Date.now(), 0n);
        break;
      case 'paysMore':
        this.#pay(order, Date.now(), 1n);
        break;
      case 'rejects':
        order.state = 'rejected';
        order.code = 'AC04';
        this.#notify(key, { kind: 'rejected', code: 'AC04' });
        break;
      case 'misreports':
        // Only in a callback: the bank's books do not have this amount.
        this.#notify(key, { kind: 'settled', amountMinor: amountMinor + 1n, currency });
        break;
      case 'callsDuplicate':
        // As if the bank had received the order twice.
        this.#notify(key, { kind: 'rejected', code: 'AM05' });
        break;
      case 'returnsAll':
        this.#return(order, amountMinor);
        break;
      case 'returnsMost':
        this.#return(order, (amountMinor * 95n) / 100n);
        break;
      case 'returnsHalf':
        this.#return(order, amountMinor / 2n);
        break;
      case 'returnsOne':
        this.#return(order, 1n);
        break;
    }
    return true;
  }

  /** Does everything that is due by now. Call it whenever the clock has moved. */
  pass(): void {
    const nowMs = Date.now();
    for (const order of [...this.#inFlight]) {
      if (order.untilMs <= nowMs) this.#land(order, order.untilMs);
    }
    for (const order of this.#orders) {
      if (order.state !== 'open' || order.deadlineMs > nowMs) continue;
      if (this.fates.get(order.transfer.key) === 'dies') order.state = 'dead';
      else this.#pay(order, order.deadlineMs, 0n);
    }
  }

  /** Takes a notice that is not delivered yet: the first one, or the last. */
  take(key: string, isLast = false): RailEvent | undefined {
    const found = this.#notices.filter((notice) => notice.key === key);
    const notice = isLast ? found.at(-1) : found[0];
    if (notice === undefined) return undefined;
    this.#notices.splice(this.#notices.indexOf(notice), 1);
    return notice;
  }

  takeAll(): readonly RailEvent[] {
    return this.#notices.splice(0);
  }

  /** Lets the orders of a key that are in flight arrive now. */
  #arrive(key: string): boolean {
    const arriving = this.#inFlight.filter(({ transfer }) => transfer.key === key);
    for (const order of arriving) this.#land(order, Date.now());
    return arriving.length > 0;
  }

  #known(key: string, atMs = Date.now()) {
    const known = this.#memory.get(key);
    const isRemembered = known !== undefined && atMs - known.since < this.limits.keyRetentionMs;
    return isRemembered ? known : undefined;
  }

  #submit(transfer: Transfer, manner: SubmitManner): SubmitAnswer {
    const { key } = transfer;
    const unknown = { key, kind: 'unknown', detail: `it was ${manner}` } as const;
    if (manner === 'dropped') return unknown;
    if (manner === 'late') {
      this.#inFlight.push({ transfer, untilMs: Date.now() + this.inFlightMs });
      return unknown;
    }
    const known = this.#known(key);
    const order = known === undefined ? this.#accept(transfer, Date.now()) : known.order;
    if (order === undefined) return { key, kind: 'voided' };
    if (manner === 'unsaid') return unknown;
    if (manner === 'refused') {
      if (known !== undefined) {
        return { key, kind: 'rejected', code: 'AM05' };
      }
      order.state = 'rejected';
      order.code = 'AC01';
    }
    return order.state === 'rejected'
      ? { key, kind: 'rejected', code: order.code }
      : { key, kind: 'accepted', reference: `ref-${key}` };
  }

  #accept(transfer: Transfer, atMs: number): Order {
    const deadlineMs = atMs + this.limits.settleWithinMs;
    const none = { code: '', paidMinor: 0n, paidAt: undefined, returnedMinor: 0n };
    const order: Order = { transfer, deadlineMs, state: 'open', ...none };
    this.#orders.push(order);
    this.#memory.set(transfer.key, { order, since: atMs });
    return order;
  }

  /** Lets an order in flight arrive. Its caller has gone, so there is no answer. */
  #land(order: { readonly transfer: Transfer; readonly untilMs: number }, atMs: number): void {
    this.#inFlight.splice(this.#inFlight.indexOf(order), 1);
    if (this.#known(order.transfer.key, atMs) === undefined) this.#accept(order.transfer, atMs);
  }

  #pay(order: Order, atMs: number, moreMinor: bigint): void {
    const { transfer } = order;
    order.state = 'paid';
    order.paidMinor = transfer.amountMinor + moreMinor;
    this.#book(transfer, order.paidMinor, atMs, 'debit');
    const { key, currency } = transfer;
    order.paidAt = new Date(atMs).toISOString();
    const paid = { amountMinor: order.paidMinor, currency, at: order.paidAt };
    this.#notify(key, { kind: 'settled', ...paid });
  }

  #return(order: Order, amountMinor: bigint): void {
    const { key, currency } = order.transfer;
    order.returnedMinor += amountMinor;
    this.#book(order.transfer, amountMinor, Date.now(), 'credit');
    const reason = { code: 'AC06', reason: 'blocked' };
    this.#notify(key, { kind: 'returned', amountMinor, currency, ...reason });
  }

  #book(
    { key, currency }: Transfer,
    amountMinor: bigint,
    atMs: number,
    direction: 'debit' | 'credit',
  ): void {
    this.#references += 1;
    this.#bookings.push({
      key,
      bankReference: `bank-${key}-${this.#references}`,
      direction,
      amountMinor,
      currency,
      bookedAt: new Date(atMs).toISOString(),
    });
  }

  #notify(key: string, report: RailReport): void {
    this.#references += 1;
    this.#notices.push({ key, id: `${key}-${this.#references}`, report });
  }

  #lookup(key: string): LookupAnswer {
    const known = this.#known(key);
    if (known === undefined) return { key, kind: 'not_found' };
    const { order } = known;
    if (order === undefined) return { key, kind: 'voided' };
    const { currency } = order.transfer;
    if (order.returnedMinor > 0n) {
      const back = { amountMinor: order.returnedMinor, code: 'AC06', reason: 'blocked' };
      return { key, kind: 'returned', currency, ...back };
    }
    switch (order.state) {
      case 'open':
      case 'dead':
        return { key, kind: 'accepted', reference: `ref-${key}` };
      case 'paid':
        return { key, kind: 'settled', amountMinor: order.paidMinor, currency, at: order.paidAt };
      case 'rejected':
        return { key, kind: 'rejected', code: order.code };
    }
  }

  #void(key: string): 'voided' | 'too_late' {
    const known = this.#known(key);
    if (known === undefined) this.#memory.set(key, { order: undefined, since: Date.now() });
    return known?.order === undefined ? 'voided' : 'too_late';
  }

  #statement(date: string): Statement {
    const endMs = Date.parse(date) + dayMs;
    const lines = this.#bookings.filter((line) => line.bookedAt.startsWith(date));
    return {
      closed: Date.now() >= endMs + this.closesAfterMs && !this.leftOpen.has(date),
      lines: lines.map((line) => ({
        ...line,
        key: this.garbled.has(line.key) ? 'NOTPROVIDED' : (this.bookedAs.get(line.key) ?? line.key),
      })),
    };
  }
}
