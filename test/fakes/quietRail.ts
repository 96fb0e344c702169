import type { LookupAnswer, Rail, Transfer } from '../../src/rails/rail.js';

const dayMs = 24 * 60 * 60 * 1000;

/** A rail in this process that never calls back. */
export class QuietRail implements Rail {
  readonly name = 'sandbox';
  readonly limits = { bulkSize: 500, keyRetentionMs: 30 * dayMs, settleWithinMs: 5 * dayMs };
  readonly #transfers = new Map<string, Transfer>();
  readonly #settlesAfterLookups: number;
  readonly #answers: boolean;
  readonly #voids: boolean;
  #lookups = 0;

  /**
   * `settlesAfterLookups`: the number of lookups after which accepted transfers are settled; by default
   * never. `answers`: whether submissions are accepted; otherwise every outcome is unknown. `voids`:
   * whether `voidKey` voids a key, rather than return `too_late`.
   */
  constructor({
    settlesAfterLookups = Number.POSITIVE_INFINITY,
    answers = true,
    voids = false,
  } = {}) {
    this.#settlesAfterLookups = settlesAfterLookups;
    this.#answers = answers;
    this.#voids = voids;
  }

  readonly submit: Rail['submit'] = async (transfers) => {
    if (!this.#answers) {
      return transfers.map(({ key }) => ({ key, kind: 'unknown', detail: 'no answer' }));
    }
    for (const transfer of transfers) this.#transfers.set(transfer.key, transfer);
    return transfers.map(({ key }) => ({ key, kind: 'accepted', reference: `ref_${key}` }));
  };

  readonly lookup: Rail['lookup'] = async (keys) => {
    this.#lookups += 1;
    return keys.map((key) => this.#state(key));
  };

  readonly voidKey: Rail['voidKey'] = async () => (this.#voids ? 'voided' : 'too_late');
  readonly statement: Rail['statement'] = async () => ({ closed: false, lines: [] });

  #state(key: string): LookupAnswer {
    const transfer = this.#transfers.get(key);
    if (transfer === undefined) return { key, kind: 'not_found' };
    const { amountMinor, currency } = transfer;
    return this.#lookups < this.#settlesAfterLookups
      ? { key, kind: 'accepted', reference: `ref_${key}` }
      : { key, kind: 'settled', amountMinor, currency };
  }
}
