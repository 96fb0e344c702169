import { describe, expect, it } from 'vitest';
import {
  type CommandState,
  detailsOf,
  offersOf,
  orderText,
  refusalOf,
  waitOf,
} from '../../src/domain/commandRules.js';
import { payoutStatuses } from '../../src/domain/payout.js';
import { reasonsOrNone } from '../fixtures/attentionReasons.js';

const kinds = [
  ...(['retryNow', 'markSettled', 'failAndRelease', 'extendDeadline'] as const),
  ...(['cancel', 'correct', 'approve'] as const),
];

/** The states that a payout can be in, as far as they matter for commands. */
const states: readonly CommandState[] = payoutStatuses.flatMap((status) =>
  reasonsOrNone.flatMap((attentionReason) =>
    histories(status).map(({ isAccepted, isSubmitted }) => {
      const settleBy = isAccepted ? '2026-11-30T23:59:59.999Z' : null;
      return { id: 'po_1', status, attentionReason, isAccepted, isSubmitted, settleBy };
    }),
  ),
);

/** What may have happened to a payout before it had this status. */
function histories(status: CommandState['status']) {
  const refused = { isAccepted: false, isSubmitted: false };
  const accepted = { isAccepted: true, isSubmitted: false };
  const sent = { isAccepted: true, isSubmitted: true };
  if (status === 'pending') return [refused];
  if (status === 'processing') return [accepted, sent];
  return status === 'failed' || status === 'canceled' ? [refused, sent] : [sent];
}

const nameOf = ({ status, attentionReason, isAccepted, isSubmitted }: CommandState) => {
  const history = isSubmitted ? 'sent to the bank' : isAccepted ? 'never sent' : 'never accepted';
  return `${status}, ${attentionReason ?? 'not parked'}, ${history}`;
};

/** Writes the table of all states. Each text stands once, under a number, above the table. */
function tableOf(all: readonly CommandState[]): string {
  const numbers = new Map<string, string>();
  const numberOf = (letter: string, text: string) => {
    const number = numbers.get(text) ?? `${letter}${numbers.size + 1}`;
    numbers.set(text, number);
    return number;
  };
  const rows = all.map((state) => {
    const wait = waitOf(state);
    const offers = (suspenseMinor: bigint) =>
      offersOf(state, suspenseMinor)
        .map(({ command, does }) => numberOf('C', `\`${command}\`: ${does}`))
        .join(' ');
    const refusals = kinds.flatMap((kind) => {
      const refusal = refusalOf(kind, state);
      return refusal === undefined ? [] : [`${kind} ${numberOf('R', refusal)}`];
    });
    return [
      nameOf(state),
      wait === undefined ? '' : numberOf('W', `${wait.waitsFor} Who: ${wait.who}.`),
      ...[0n, 1n, -1n].map(offers),
      refusals.join(', '),
    ].join(' | ');
  });
  const head = ['State', 'Waits for', 'Commands', 'with money in suspense', 'with less than none'];
  return [
    ...[...numbers].map(([text, number]) => `- ${number}: ${text}`),
    `\n| ${head.join(' | ')} | Refused |`,
    '| --- | --- | --- | --- | --- | --- |',
    ...rows.map((row) => `| ${row} |`),
    '',
  ].join('\n');
}

it('every state of a payout allows the commands, and gives the reasons, that commandRules.md lists', async () => {
  await expect(tableOf(states)).toMatchFileSnapshot('commandRules.md');
});

describe('the Temporal UI shows', () => {
  const shown = { order: '12.50 USD to 10.00 EUR', accountId: 'acc_1', id: 'po_1' } as const;
  const sent = { isAccepted: true, isSubmitted: true, settleBy: null } as const;
  const parked = {
    ...shown,
    ...sent,
    status: 'failed',
    attentionReason: 'paid_after_release',
  } as const;

  it('the order, the case, what was found and the commands', () => {
    expect(detailsOf(parked, 'The bank paid twice.')).toMatchInlineSnapshot(`
      "**12.50 USD to 10.00 EUR**, account \`acc_1\`

      **Needs an operator: paid_after_release**

      The rail paid although the hold was released; the money is in suspense. Who can act: an operator, after asking the bank.

      The bank paid twice.

      Available commands:

      - \`corridor payouts late-return po_1 --amount SUM --reason TEXT\`: books the amount that came back; a second operator must approve
      - \`corridor payouts clear-suspense po_1 --charge customer --reason TEXT\`: charges the full amount, if none has come back; a second operator must approve
      - \`corridor payouts clear-suspense po_1 --charge house --reason TEXT\`: writes it off; a second operator must approve
      - \`corridor payouts correct po_1 --postings LIST --reason TEXT\`: books what the bank actually did; a second operator must approve

      Full history: \`corridor payouts show po_1\`"
    `);
  });

  it('the status of a payout that needs no operator', () => {
    const settled = { ...parked, status: 'settled', attentionReason: null } as const;
    expect(detailsOf(settled, '')).toMatchInlineSnapshot(`
      "**12.50 USD to 10.00 EUR**, account \`acc_1\`

      Status: settled.

      Full history: \`corridor payouts show po_1\`"
    `);
  });

  it('what was found only once', () => {
    const { waitsFor = '' } = waitOf(parked) ?? {};
    expect(detailsOf(parked, waitsFor).split(waitsFor)).toHaveLength(2);
  });
});

it.each([
  [{}, '1,250.00 USD to 1,146.03 EUR'],
  [{ receiveMinor: null }, '1,250.00 USD to EUR'],
  [{ receiveMinor: null, fixedSide: 'destination', amount: 99n }, '1,250.00 USD to 0.99 EUR'],
  [{ sourceMinor: null, fixedSide: 'source', amount: 99n }, '0.99 USD to 1,146.03 EUR'],
  [{ sourceMinor: null, fixedSide: 'destination', amount: 99n }, 'USD to 1,146.03 EUR'],
  [{ destinationCurrency: null, receiveMinor: null }, '1,250.00 USD to an unknown currency'],
] as const)('an order with %o is %s', (known, text) => {
  const terms = {
    ...{ fixedSide: null, amount: 1n, sourceMinor: 125_000n, receiveMinor: 114_603n },
    ...{ sourceCurrency: 'USD', destinationCurrency: 'EUR' },
  };
  expect(orderText({ ...terms, ...known })).toBe(text);
});
