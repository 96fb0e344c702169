import { reasonCodes } from './reasonCodes.js';

/** A step of an accepted transfer, at a time measured from its acceptance. */
export type Step = { readonly afterMs: number } & (
  | { readonly type: 'settled' }
  | { readonly type: 'returned' | 'rejected'; readonly code: string }
);

/** How the bank processes a transfer, determined only by the remittance text. */
export type Plan =
  | { readonly entry: 'rejected'; readonly code: string; readonly reason: string }
  /** Nothing is recorded and no answer is sent. */
  | { readonly entry: 'ignored' }
  | {
      readonly entry: 'accepted';
      readonly isAnswered: boolean;
      readonly steps: readonly Step[];
      /** Added to the amount in callbacks and look-ups; the books keep the true amount. */
      readonly misreportedMinor: bigint;
      readonly areCallbacksDuplicated: boolean;
    };

type Words = { readonly code: string; readonly afterMs: number };

type Row = {
  /** The words after `simulate:`. CODE and DURATION are placeholders. */
  readonly order: string;
  readonly answer: string;
  readonly afterwards: string;
  readonly plan: (words: Words) => Plan;
};

/** Long enough for a caller to see `sent`, short enough not to make anyone wait. */
const settleAfterMs = 200;

const settles: Step = { type: 'settled', afterMs: settleAfterMs };

const usual = {
  entry: 'accepted',
  isAnswered: true,
  steps: [settles],
  misreportedMinor: 0n,
  areCallbacksDuplicated: false,
} as const;

/** Every order the bank understands. The documentation and the message of a refusal are made from it. */
const rows: readonly Row[] = [
  {
    order: 'reject CODE',
    answer: 'rejected with that code',
    afterwards: 'nothing',
    plan: ({ code }) => rejection(code),
  },
  {
    order: 'late rejection CODE',
    answer: 'accepted',
    afterwards: 'rejected with that code after 200 ms, instead of settling',
    plan: ({ code }) => ({ ...usual, steps: [{ type: 'rejected', code, afterMs: settleAfterMs }] }),
  },
  {
    order: 'return CODE after DURATION',
    answer: 'accepted',
    afterwards: 'settles after 200 ms, and is returned in full that long after acceptance',
    plan: ({ code, afterMs }) => ({
      ...usual,
      steps: [settles, { type: 'returned', code, afterMs }],
    }),
  },
  {
    order: 'return CODE after DURATION before settlement',
    answer: 'accepted',
    afterwards: 'is returned in full after that time, without having settled',
    plan: ({ code, afterMs }) => ({ ...usual, steps: [{ type: 'returned', code, afterMs }] }),
  },
  {
    order: 'delay DURATION',
    answer: 'accepted',
    afterwards: 'settles after that time',
    plan: ({ afterMs }) => ({ ...usual, steps: [{ type: 'settled', afterMs }] }),
  },
  {
    order: 'timeout then settle',
    answer: 'none until the client disconnects, or "unknown" in bulk; a repeated order is accepted',
    afterwards: 'settles after 200 ms',
    plan: () => ({ ...usual, isAnswered: false }),
  },
  {
    order: 'timeout then nothing',
    answer:
      'none until the client disconnects, or "unknown" in bulk; a repeated order gets the same',
    afterwards: 'nothing: the transfer is not recorded, and a look-up returns not_found',
    plan: () => ({ entry: 'ignored' }),
  },
  {
    order: 'duplicate callbacks',
    answer: 'accepted',
    afterwards:
      'settles after 200 ms; each callback is sent three times with one event id and once with another',
    plan: () => ({ ...usual, areCallbacksDuplicated: true }),
  },
  {
    order: 'never settle',
    answer: 'accepted',
    afterwards: 'nothing: the transfer never settles',
    plan: () => ({ ...usual, steps: [] }),
  },
  {
    order: 'wrong amount',
    answer: 'accepted',
    afterwards: 'settles after 200 ms; the callback and the look-up report one minor unit too much',
    plan: () => ({ ...usual, misreportedMinor: 1n }),
  },
];

/** The orders for the documentation; each is written after `simulate:`. */
export const simulateOrders: readonly Omit<Row, 'plan'>[] = rows.map(
  ({ order, answer, afterwards }) => ({ order, answer, afterwards }),
);

const unitsMs: ReadonlyMap<string, number> = new Map([
  ['ms', 1],
  ['s', 1_000],
  ['m', 60_000],
  ['h', 3_600_000],
]);

/** Longer than any test waits, and far below the limit of Node's timers (24.8 days). */
const maximumDurationMs = 24 * 3_600_000;

const patterns = rows.map((row) => ({ row, pattern: patternOf(row.order) }));

function patternOf(order: string): RegExp {
  const source = order
    .replace('CODE', '(?<code>[a-z0-9]{4})')
    // Eight digits are enough for a day in milliseconds.
    .replace('DURATION', '(?<count>\\d{1,8})(?<unit>ms|s|m|h)');
  return new RegExp(`^${source}$`, 'i');
}

/**
 * Parses the order in a remittance text: the words after the first `simulate:`, up to a semicolon or the
 * end. Without an order the transfer settles as usual. An unknown order is rejected with a list of the
 * known ones, so that a test with a misspelt order fails with the remedy instead of passing.
 */
export function planOf(remittance: string): Plan {
  const text = /simulate:([^;]*)/i.exec(remittance)?.[1];
  if (text === undefined) return usual;
  const order = text.trim().replace(/\s+/g, ' ');
  for (const { row, pattern } of patterns) {
    const match = pattern.exec(order);
    const words = match === null ? undefined : wordsOf(match.groups ?? {});
    if (words !== undefined) return row.plan(words);
  }
  return { entry: 'rejected', code: 'NARR', reason: notUnderstood(order) };
}

/** Parses the placeholders of an order; undefined if a value is invalid. */
function wordsOf(groups: { readonly [name: string]: string | undefined }): Words | undefined {
  const code = groups.code?.toUpperCase() ?? '';
  if (code !== '' && !reasonCodes.has(code)) return undefined;
  const unitMs = unitsMs.get(groups.unit?.toLowerCase() ?? 'ms') ?? 0;
  const afterMs = Number.parseInt(groups.count ?? '0', 10) * unitMs;
  return afterMs > maximumDurationMs ? undefined : { code, afterMs };
}

function notUnderstood(order: string): string {
  const known = rows.map((row) => row.order).join(' | ');
  const codes = [...reasonCodes.keys()].join(' ');
  return (
    `"simulate: ${order}" is not an order of the sandbox bank. It knows: ${known}. ` +
    `DURATION is a whole number and ms, s, m or h, at most 24h. CODE is one of ${codes}.`
  );
}

/** Returns a rejection with the text of its reason code. */
function rejection(code: string): Extract<Plan, { entry: 'rejected' }> {
  return { entry: 'rejected', code, reason: reasonOf(code) };
}

export function reasonOf(code: string): string {
  return reasonCodes.get(code) ?? code;
}
