import type { Corridor, CorridorProblem } from '@corridor/client';

/** Never runs: the compiler must report exactly these mistakes. */
export async function mistakes(corridor: Corridor, problem: CorridorProblem) {
  const live = { source_currency: 'USD', amount: 5_000 };
  // @ts-expect-error a payout has a beneficiary
  await corridor.payouts.create(live);
  // @ts-expect-error the parameter is source_currency
  await corridor.payouts.create({ beneficiary: 'bnf_1', sourceCurrency: 'USD' });
  // @ts-expect-error metadata is text
  await corridor.payouts.create({ ...live, beneficiary: 'bnf_1', metadata: { order: 7 } });
  // @ts-expect-error there is no such status
  await corridor.payouts.list({ status: 'paid' });
  // @ts-expect-error there is no such event
  await corridor.webhookEndpoints.create({ url: 'https://example.com', events: ['payout.paid'] });
  const payout = await corridor.payouts.retrieve('po_1');
  // @ts-expect-error money is text, and may be null
  const received: number = payout.received;
  // @ts-expect-error without expand it is an id
  const { name } = payout.beneficiary;
  // @ts-expect-error there is no such code
  return problem.code === 'no_money' ? received : name;
}
