import { Corridor, CorridorConnectionError } from '@corridor/client';

// The default is so long that only a timeout set for one request can end it without a response.
const corridor = new Corridor({ timeoutMs: 600_000 });
const details = {
  type: 'individual',
  name: 'Ada Lovelace',
  country: 'DE',
  currency: 'EUR',
  iban: 'DE89370400440532013000',
} as const;
const { id: beneficiary } = await corridor.beneficiaries.create(details, { timeoutMs: 1_000 });

const live = { beneficiary, source_currency: 'USD', amount: 2_000 };
const paid = await corridor.payouts.create({ ...live, reference: 'once' });

function* items() {
  for (const reference of ['a', 'b', 'c']) yield { ...live, reference };
}
const batch = await corridor.batches.createFrom(items());

const urgent = { ...live, reference: 'urgent' };
async function givenUp() {
  try {
    return await corridor.payouts.create(urgent, { maxRetries: 1 });
  } catch (error) {
    if (error instanceof CorridorConnectionError) return error;
    throw error;
  }
}
const lost = await givenUp();
const key = lost instanceof Error ? lost.idempotencyKey : undefined;
const isAdvised = lost instanceof Error && key !== undefined && lost.message.includes(key);
const repeated = await corridor.payouts.create(urgent, { idempotencyKey: key });
const isUrgent = repeated.reference === 'urgent';

console.log(JSON.stringify({ paid: paid.id, batch: batch.id, key, isAdvised, isUrgent }));
