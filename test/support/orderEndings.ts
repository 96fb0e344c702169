/** How a payout with an order for the sandbox bank ends, single or in a batch. */
export type Ending = {
  /** The order as it is written, with its code and time. */
  readonly reference: string;
  readonly history: readonly string[];
  readonly reason: string | null;
  /** What the bank's journal says of it. */
  readonly journal: readonly string[];
  /** The entries of the ledger after the acceptance. */
  readonly entries: readonly ('settle' | 'release' | 'return')[];
  readonly attention?: string;
};

export const settled = {
  history: ['pending', 'processing', 'sent', 'settled'],
  reason: null,
  journal: ['transfer', 'settled'],
  entries: ['settle'],
} as const;

/** Every order of the bank's table, by the table's own words. */
export const orderEndings: Readonly<Record<string, Ending>> = {
  'reject CODE': {
    reference: 'simulate: reject AC04',
    history: ['pending', 'processing', 'failed'],
    reason: 'AC04',
    journal: ['rejected'],
    entries: ['release'],
  },
  'late rejection CODE': {
    reference: 'simulate: late rejection AC06',
    history: ['pending', 'processing', 'sent', 'failed'],
    reason: 'AC06',
    journal: ['transfer', 'rejected'],
    entries: ['release'],
  },
  'return CODE after DURATION': {
    reference: 'simulate: return AM04 after 1s',
    history: ['pending', 'processing', 'sent', 'settled', 'returned'],
    reason: 'AM04',
    journal: ['transfer', 'settled', 'returned'],
    entries: ['settle', 'return'],
  },
  'return CODE after DURATION before settlement': {
    reference: 'simulate: return AC04 after 300ms before settlement',
    history: ['pending', 'processing', 'sent', 'returned'],
    reason: 'AC04',
    journal: ['transfer', 'returned'],
    entries: ['settle', 'return'],
  },
  'delay DURATION': { ...settled, reference: 'simulate: delay 1s' },
  'timeout then settle': { ...settled, reference: 'simulate: timeout then settle' },
  'timeout then nothing': {
    reference: 'simulate: timeout then nothing',
    history: ['pending', 'processing'],
    reason: null,
    journal: [],
    entries: [],
  },
  'duplicate callbacks': { ...settled, reference: 'simulate: duplicate callbacks' },
  'never settle': {
    reference: 'simulate: never settle',
    history: ['pending', 'processing', 'sent'],
    reason: null,
    journal: ['transfer'],
    entries: [],
  },
  'wrong amount': {
    reference: 'simulate: wrong amount',
    history: ['pending', 'processing', 'sent'],
    reason: null,
    journal: ['transfer', 'settled'],
    entries: [],
    attention: 'amount_mismatch',
  },
};
