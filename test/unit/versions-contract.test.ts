import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { batchObject } from '../../src/contract/batchObjects.js';
import { eventObject, listObject, payoutObject, quoteObject } from '../../src/contract/objects.js';
import {
  apiVersions,
  defaultApiVersion,
  isApiVersion,
  render,
} from '../../src/contract/versions/index.js';
import type { BatchCount } from '../../src/db/batches.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import type { QuoteRow } from '../../src/db/quotes.js';
import { formatRate, parseRate } from '../../src/domain/fx.js';
import { payoutStatuses, statusHistory } from '../../src/domain/payout.js';

const createdAt = new Date('2026-11-21T12:00:00.000Z');

const quoteSource: QuoteRow = {
  id: 'qt_1',
  accountId: 'acc_1',
  sourceCurrency: 'USD',
  destinationCurrency: 'JPY',
  fixedSide: 'source',
  amount: 100_000n,
  sourceMinor: 100_000n,
  feeMinor: 430n,
  netMinor: 99_570n,
  receiveMinor: 155_000n,
  midValueMinor: 155_787n,
  rate: '155.6789012',
  mid: '156.46',
  rateProvider: 'corridor-reference-2026-11-20',
  rateAsOf: createdAt,
  sourceRateId: null,
  destinationRateId: null,
  feeTermsId: 1n,
  spreadTermsId: null,
  createdAt,
  expiresAt: new Date('2026-11-21T12:00:30.000Z'),
  usedBy: null,
  expired: false,
};

/** A payout as recorded, before its decision. */
const pendingSource: PayoutRow = {
  id: 'po_1',
  accountId: 'acc_1',
  mode: 'test',
  driver: 'po_1',
  status: 'pending',
  statusReason: null,
  processingSince: null,
  sentSince: null,
  settledSince: null,
  failedSince: null,
  canceledSince: null,
  returnedSince: null,
  quoteId: null,
  beneficiaryId: 'bnf_1',
  beneficiaryVersion: null,
  sourceCurrency: 'USD',
  destinationCurrency: null,
  fixedSide: 'source',
  amount: 100_000n,
  reference: 'Invoice 7',
  metadata: { order: '7' },
  requestedAt: createdAt,
  sourceMinor: null,
  feeMinor: null,
  receiveMinor: null,
  rate: null,
  rateProvider: null,
  rateAsOf: null,
  settledAt: null,
  returnedMinor: null,
  batchId: null,
  retryOf: null,
  batchIndex: null,
  netMinor: null,
  midValueMinor: null,
  mid: null,
  sourceRateId: null,
  destinationRateId: null,
  feeTermsId: null,
  spreadTermsId: null,
  rail: null,
  railReference: null,
  settleBy: null,
  submitStartedAt: null,
  lastSentAt: null,
  voidIntent: null,
  refusal: null,
  attentionReason: null,
  attentionDetail: null,
  attentionAt: null,
};

const sentSource: PayoutRow = {
  ...pendingSource,
  status: 'sent',
  quoteId: 'qt_1',
  sourceCurrency: 'USD',
  destinationCurrency: 'JPY',
  sourceMinor: 100_000n,
  feeMinor: 430n,
  netMinor: 99_570n,
  receiveMinor: 155_000n,
  midValueMinor: 155_787n,
  rate: '155.6789012',
  mid: '156.46',
  rateProvider: 'ecb',
  rateAsOf: createdAt,
};

const settledSource: PayoutRow = {
  ...sentSource,
  status: 'settled',
  settledAt: new Date('2026-11-21T12:00:01.000Z'),
};

const quote = quoteObject(quoteSource);
const payout = payoutObject(sentSource);
const numbers = { rate: 155.6789012, fee: 4.3 };

const terms = {
  accountId: 'acc_1',
  open: 0,
  mode: 'best_effort',
  outcome: 'accepted',
  pausedAt: null,
  canceledAt: null,
} as const;

describe('version 2026-06-01', () => {
  test('has rate and fee of quotes and payouts as numbers and changes nothing else', () => {
    for (const object of [quote, payout]) {
      expect(object).toMatchObject({ rate: '155.6789012', fee: '4.30' });
      expect(render(object, '2026-06-01')).toEqual({ ...object, ...numbers });
    }
  });

  test('leaves amounts that are not known yet null', () => {
    const pending = payoutObject(pendingSource);
    expect(render(pending, '2026-06-01')).toEqual(pending);
    expect(pending).toMatchObject({ rate: null, fee: null });
  });

  test('leaves the rates and fees of other objects as they are', () => {
    const other = { object: 'corridor', rate: '1.5', fee: '4.30', quote: { rate: '1.5' } };
    expect(render(other, '2026-06-01')).toEqual(other);
    const batch = batchObject(
      { ...terms, id: 'bat_1', status: 'processing', total: 1, createdAt, completedAt: null },
      [{ ...itemSource, status: 'sent' }],
    );
    expect(render(batch, '2026-06-01')).toEqual(batch);
  });

  test('converts objects inside lists, events, and lists of events', () => {
    const list = listObject([quote, payout, { object: 'balance', fee: '1.00' }], true);
    expect(render(list, '2026-06-01')).toEqual({
      object: 'list',
      data: [
        { ...quote, ...numbers },
        { ...payout, ...numbers },
        { object: 'balance', fee: '1.00' },
      ],
      has_more: true,
    });
    const expanded = listObject([{ ...payout, quote, metadata: { object: 'quote', rate: '1.5' } }]);
    expect(render(expanded, '2026-06-01')).toMatchObject({
      data: [{ ...numbers, quote: { ...quote, ...numbers }, metadata: { rate: '1.5' } }],
    });
    const event = eventObject({
      ...sentSource,
      id: 'evt_1',
      subjectId: 'po_1',
      type: 'payout.sent',
      sequence: 7n,
      facts: { status: 'sent', statusReason: null, settledAt: null, returnedMinor: null },
      createdAt,
    });
    const older = { ...event, data: { ...payout, ...numbers } };
    expect(render(event, '2026-06-01')).toEqual(older);
    expect(render(listObject([event]), '2026-06-01')).toMatchObject({ data: [older] });
    expect(event).toMatchObject({ type: 'payout.sent', sequence: 7, data: payout });
  });

  test('shows the payout of an event as it was at the time of the event', () => {
    const at = (second: number) => new Date(`2026-11-21T12:00:0${second}.000Z`);
    const later = [
      { status: 'sent', sentSince: at(1) },
      { status: 'settled', settledSince: at(3), settledAt: at(2) },
      { status: 'returned', returnedSince: at(4), returnedMinor: 7n, statusReason: 'AC04' },
    ] as const;
    const ended: PayoutRow = Object.assign({}, sentSource, ...later);
    let then: PayoutRow = sentSource;
    for (const step of later) {
      then = { ...then, ...step };
      const facts = {
        status: then.status,
        statusReason: then.statusReason,
        settledAt: then.settledAt?.toISOString() ?? null,
        returnedMinor: then.returnedMinor?.toString() ?? null,
      };
      const event = { id: 'evt_1', subjectId: 'po_1', sequence: 7n, createdAt, facts };
      const shown = eventObject({ ...ended, ...event, type: `payout.${step.status}` });
      expect(shown.data).toEqual(payoutObject(then));
    }
    expect(payoutObject(then)).toEqual(payoutObject(ended));
  });

  test('leaves data that is not an object unchanged', () => {
    for (const data of [null, 'text', 7]) {
      const event = { object: 'event', data };
      expect(render(event, '2026-06-01')).toEqual(event);
    }
    const mixed = { object: 'list', data: [null, 'text', [payout]] };
    expect(render(mixed, '2026-06-01')).toEqual(mixed);
  });

  test('loses no digit of a rate or a fee', () => {
    const digits = fc.bigInt({ min: 1n, max: 10n ** 10n - 1n });
    fc.assert(
      fc.property(digits, fc.nat({ max: 6 }), (significant, decimals) => {
        const rate = formatRate(parseRate(`${significant}`).times(`1e-${decimals}`));
        const older = render({ object: 'payout', rate, fee: rate }, '2026-06-01');
        expect(older['fee']).toBe(older['rate']);
        expect(formatRate(parseRate(JSON.stringify(older['rate'])))).toBe(rate);
      }),
    );
  });

  /** Amounts with any number of decimals, up to the largest amount. */
  const decimals = fc
    .tuple(fc.bigInt({ min: 0n, max: 10n ** 14n }), fc.nat(4))
    .map(([minor, digits]) => {
      const text = `${minor}`.padStart(digits + 1, '0');
      return digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`;
    });
  const trimmed = (text: string) => text.replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');

  test('of any quote and payout changes rate and fee, to the same number, and nothing else', () => {
    const known = fc.record({
      object: fc.constantFrom('quote', 'payout'),
      rate: fc.option(decimals),
      fee: fc.option(decimals),
    });
    const names = fc.string().filter((name) => !['object', 'rate', 'fee', 'data'].includes(name));
    const others = fc.dictionary(names, fc.jsonValue());
    fc.assert(
      fc.property(known, others, (object, rest) => {
        const { rate, fee, ...kept } = render({ ...rest, ...object }, '2026-06-01');
        expect(kept).toEqual({ ...rest, object: object.object });
        const converted: readonly (readonly [unknown, string | null])[] = [
          [rate, object.rate],
          [fee, object.fee],
        ];
        for (const [number, text] of converted) {
          if (text === null) expect(number).toBeNull();
          // The shortest digits of the number equal the text, so nothing was rounded.
          else expect(JSON.stringify(number)).toBe(trimmed(text));
        }
      }),
    );
  });

  test('does not change the object it is given', () => {
    const frozen = Object.freeze({ ...payout });
    render(frozen, '2026-06-01');
    expect(frozen).toEqual(payout);
  });
});

describe('the versions', () => {
  test('begin with the newest, which leaves objects unchanged', () => {
    const [newest] = apiVersions;
    expect([...apiVersions].sort().reverse()).toEqual(apiVersions);
    for (const object of [quote, payout, listObject([payout]), { object: 'event', data: quote }]) {
      expect(render(object, newest)).toEqual(object);
    }
  });

  test('are known by their dates, and the specification’s is the default', () => {
    expect(defaultApiVersion).toBe('2026-06-01');
    for (const version of apiVersions) expect(isApiVersion(version)).toBe(true);
    for (const text of ['', '2026-06-02', '2026-06-01 ', 'toString']) {
      expect(isApiVersion(text)).toBe(false);
    }
  });
});

describe('a quote', () => {
  test('is open, used or expired; one that was used stays used', () => {
    const statusOf = (usedBy: string | null, expired: boolean) =>
      quoteObject({ ...quoteSource, usedBy, expired });
    expect(statusOf(null, false)).toMatchObject({ status: 'open', payout: null });
    expect(statusOf(null, true).status).toBe('expired');
    expect(statusOf('po_1', false)).toMatchObject({ status: 'used', payout: 'po_1' });
    expect(statusOf('po_1', true).status).toBe('used');
  });

  test('estimates the arrival of a payout that uses it as late and waits as long as allowed', () => {
    const of = (time: string) =>
      quoteObject({ ...quoteSource, expiresAt: new Date(`2026-11-24T${time}Z`) });
    // The cut-off in Tokyo is 14:00, and a rate is held for five minutes while a payout waits.
    expect(of('04:54:59.999').estimated_arrival).toBe('2026-11-24T14:59:59.999Z');
    expect(of('04:55:00.000').estimated_arrival).toBe('2026-11-25T14:59:59.999Z');
  });

  test('has the requested amount in minor units, and decimal amounts with the digits of their currency', () => {
    expect(quote).toMatchObject({
      object: 'quote',
      amount: 100_000,
      source_amount: '1000.00',
      receive_amount: '155000',
      rate_source: { provider: 'corridor-reference-2026-11-20', as_of: createdAt.toISOString() },
      created_at: '2026-11-21T12:00:00.000Z',
      expires_at: '2026-11-21T12:00:30.000Z',
    });
  });
});

describe('a payout', () => {
  test('before its acceptance has the requested values and no amounts', () => {
    expect(payoutObject(pendingSource)).toEqual({
      object: 'payout',
      id: 'po_1',
      status: 'pending',
      status_reason: null,
      status_reason_text: null,
      quote: null,
      batch: null,
      retry_of: null,
      beneficiary: 'bnf_1',
      beneficiary_version: null,
      reference: 'Invoice 7',
      metadata: { order: '7' },
      source_currency: 'USD',
      destination_currency: null,
      fixed_side: 'source',
      amount: 100_000,
      source_amount: null,
      fee: null,
      rate: null,
      rate_source: null,
      receive_amount: null,
      received: null,
      returned_amount: null,
      created_at: '2026-11-21T12:00:00.000Z',
      estimated_arrival: null,
      settled_at: null,
      status_history: statusHistory(pendingSource),
    });
  });

  test('with a quote has no amount of its own before its acceptance', () => {
    const withQuote = { ...pendingSource, quoteId: 'qt_1', sourceCurrency: null, amount: null };
    expect(payoutObject(withQuote)).toMatchObject({
      quote: 'qt_1',
      amount: null,
      source_amount: null,
    });
  });

  test('that is sent has the amount that will be received, but no received amount yet', () => {
    expect(payout).toMatchObject({
      source_amount: '1000.00',
      fee: '4.30',
      rate_source: { provider: 'ecb', as_of: createdAt.toISOString() },
      receive_amount: '155000',
      received: null,
      settled_at: null,
    });
  });

  test('has an estimated arrival based on its acceptance, whatever happens later', () => {
    const accepted = { processingSince: new Date('2026-11-24T04:59:59.999Z') };
    const estimated_arrival = '2026-11-24T14:59:59.999Z';
    for (const source of [sentSource, settledSource]) {
      expect(payoutObject({ ...source, ...accepted })).toMatchObject({ estimated_arrival });
      const later = { processingSince: new Date('2026-11-24T05:00:00.000Z') };
      expect(payoutObject({ ...source, ...later })).toMatchObject({
        estimated_arrival: '2026-11-25T14:59:59.999Z',
      });
    }
  });

  test('that is settled has the full received amount', () => {
    expect(payoutObject(settledSource)).toMatchObject({
      received: '155000',
      returned_amount: null,
      settled_at: '2026-11-21T12:00:01.000Z',
    });
  });

  test('that is returned has the returned amount, in the currency it was sent in', () => {
    const returned = { ...settledSource, status: 'returned', returnedMinor: 154_000n } as const;
    expect(payoutObject(returned)).toMatchObject({
      received: '155000',
      returned_amount: '154000',
      settled_at: '2026-11-21T12:00:01.000Z',
    });
    const unsettled = { ...returned, settledAt: null };
    expect(payoutObject(unsettled)).toMatchObject({ received: null, returned_amount: '154000' });
  });
});

const itemSource: BatchCount = {
  status: 'settled',
  sourceCurrency: 'USD',
  destinationCurrency: 'JPY',
  count: 2,
  sourceMinor: 200_000n,
  feeMinor: 860n,
  receiveMinor: 310_000n,
};

describe('a batch', () => {
  const batchOf = (items: readonly BatchCount[]) => {
    const total = items.reduce((sum, { count }) => sum + count, 0);
    const row = {
      ...terms,
      id: 'bat_1',
      status: 'processing',
      total,
      createdAt,
      completedAt: null,
    } as const;
    return batchObject(row, items);
  };

  test('counts every item under its status, and the counters add up to the total', () => {
    const groups = fc.array(
      fc.record({
        status: fc.constantFrom(...payoutStatuses),
        sourceCurrency: fc.constantFrom('USD', 'EUR', null),
        count: fc.integer({ min: 1, max: 10_000 }),
      }),
      { maxLength: 30 },
    );
    fc.assert(
      fc.property(groups, (rows) => {
        const { counts } = batchOf(rows.map((row) => ({ ...itemSource, ...row })));
        const sumOf = (items: typeof rows) => items.reduce((sum, { count }) => sum + count, 0);
        const perStatus = payoutStatuses.map((status) => [
          status,
          sumOf(rows.filter((row) => row.status === status)),
        ]);
        expect(counts).toEqual({ total: sumOf(rows), ...Object.fromEntries(perStatus) });
      }),
    );
  });

  test('sums up the accepted amounts, with one line per corridor', () => {
    const nothing = { count: 5, sourceMinor: 0n, feeMinor: 0n };
    const refused: BatchCount = { ...itemSource, status: 'failed', ...nothing };
    const unknown: BatchCount = { ...itemSource, status: 'pending', destinationCurrency: null };
    const nowhere: BatchCount = { ...itemSource, status: 'pending', sourceCurrency: null };
    const euros = { ...itemSource, sourceCurrency: 'EUR', count: 1, sourceMinor: 50_000n };
    const { totals, counts } = batchOf([
      itemSource,
      { ...itemSource, status: 'sent', count: 1, sourceMinor: 100_000n, feeMinor: 430n },
      euros,
      refused,
      unknown,
      nowhere,
    ]);
    expect(counts).toMatchObject({ total: 13, settled: 3, sent: 1, failed: 5, pending: 4 });
    expect(totals).toEqual([
      {
        source_currency: 'USD',
        destination_currency: 'JPY',
        count: 3,
        source_amount: '3000.00',
        fee: '12.90',
        receive_amount: '620000',
      },
      {
        source_currency: 'EUR',
        destination_currency: 'JPY',
        count: 1,
        source_amount: '500.00',
        fee: '8.60',
        receive_amount: '310000',
      },
    ]);
  });

  test('has the time of its completion', () => {
    const completedAt = new Date('2026-11-21T12:00:09.000Z');
    const row = {
      ...terms,
      id: 'bat_1',
      status: 'completed',
      total: 1,
      createdAt,
      completedAt,
    } as const;
    expect(batchObject(row, [])).toEqual({
      object: 'batch',
      id: 'bat_1',
      status: 'completed',
      mode: 'best_effort',
      outcome: 'accepted',
      paused: false,
      progress: { final: 0, percent: 0 },
      counts: { total: 1, ...Object.fromEntries(payoutStatuses.map((status) => [status, 0])) },
      totals: [],
      created_at: '2026-11-21T12:00:00.000Z',
      canceled_at: null,
      completed_at: '2026-11-21T12:00:09.000Z',
    });
  });
});
