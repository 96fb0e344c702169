import { Corridor, CorridorProblem, CorridorWaitTimeoutError } from '@corridor/client';

const corridor = new Corridor();

const quote = await corridor.quotes.create({
  ...{ source_currency: 'USD', destination_currency: 'EUR', amount: 125_000 },
});
const beneficiary = await corridor.beneficiaries.create({
  ...{ type: 'individual', name: 'Ada Lovelace', country: 'DE', currency: 'EUR' },
  iban: 'DE89370400440532013000',
});
const order = { quote: quote.id, beneficiary: beneficiary.id, metadata: { order: '17' } };
const payout = await corridor.payouts.create(order, { idempotencyKey: 'invoice-17' });
const again = await corridor.payouts.create(order, { idempotencyKey: 'invoice-17' });
const settled = await corridor.payouts.wait(payout.id, { timeoutMs: 30_000 });

const live = { source_currency: 'USD', amount: 5_000, beneficiary: beneficiary.id };
const waited = await corridor.payouts.createAndWait(live, { timeoutMs: 30_000 });
const failed = await corridor.payouts.createAndWait(
  { ...live, reference: 'simulate: reject AC04' },
  { timeoutMs: 30_000 },
);

const impatient = corridor.payouts.createAndWait(
  { ...live, reference: 'simulate: never settle' },
  { timeoutMs: 1_000 },
);
const unsettled = await impatient.catch((error: unknown) => {
  if (error instanceof CorridorWaitTimeoutError) return error.last;
  throw error;
});

const events = ['payout.settled', 'payout.failed'] as const;
const endpoint = await corridor.webhookEndpoints.create({ url: 'http://127.0.0.1:1/', events });
const kept = await corridor.webhookEndpoints.retrieve(endpoint.id);
const deleted = await corridor.webhookEndpoints.delete(endpoint.id);

const read = await corridor.payouts.retrieve(payout.id, { expand: ['beneficiary', 'quote'] });
const { beneficiary: receiver, quote: used } = read;
const account = await corridor.account.retrieve();
const requirements = await corridor.beneficiaryRequirements.retrieve({ country: 'DE' });
const { data: balances } = await corridor.balances.list();
const { data: corridors } = await corridor.corridors.list({ destination_currency: 'EUR' });
const funded = await corridor.test.fund({ currency: 'USD', amount: 100 });

async function problemOf(call: Promise<unknown>) {
  try {
    return await call;
  } catch (error) {
    if (!(error instanceof CorridorProblem)) throw error;
    const { code, status, param, expected, received, errors, requestId } = error;
    const isTold = error.detail !== '' && requestId.startsWith('req_') && error.attempts === 1;
    const others = errors.map((one) => one.param ?? null);
    return { code, status, param, expected, received, others, isTold, kept: error.payout };
  }
}

console.log(
  JSON.stringify({
    ...{ rate: quote.rate, promised: quote.receive_amount, isSame: again.id === payout.id },
    settled: [settled.status, settled.received, settled.rate, settled.metadata],
    waited: [waited.status, waited.status_history.map(({ status }) => status)],
    unsettled: unsettled.status,
    failed: [failed.status, failed.status_reason],
    endpoint: [endpoint.events, endpoint.secret?.slice(0, 6), 'secret' in kept, deleted.deleted],
    expanded: [
      typeof receiver === 'object' && receiver.name,
      used !== null && typeof used === 'object' && used.status,
    ],
    ...{ mode: account.mode, fields: requirements.fields.map(({ name }) => name) },
    ...{ balances: balances.map(({ currency }) => currency), funded: funded.currency },
    corridors: corridors.map(({ rail }) => rail).filter((rail) => rail === 'sandbox').length > 0,
    missing: await problemOf(corridor.payouts.retrieve('po_0')),
    malformed: await problemOf(corridor.payouts.create({ ...live, amount: '12.50', quote: 'x' })),
    refused: await problemOf(corridor.payouts.create({ ...live, amount: 100_000_000 })),
  }),
);
