// Creates a funded account with a beneficiary and a webhook endpoint through the API.
import { join } from 'node:path';
import { seedAccount } from '../../dist/sandbox/seed.js';

/** 10.00 US dollars: above the minimum fee, and small enough for a test account's balance. */
export const amountMinor = 1_000;

async function call(stack, apiKey, route, body) {
  const [method, path] = route.split(' ');
  const response = await fetch(stack.description.api_url + path, {
    method,
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) {
    throw new Error(`${route} was answered ${response.status}: ${text.slice(0, 2_000)}`);
  }
  return JSON.parse(text);
}

/**
 * @param {{ stack: import('../../dist/sandbox/localStack.js').Stack, database: object, directory: string,
 *   sinkUrl: string }} bench
 */
export async function openCustomer(bench, name, payouts) {
  const { stack, database, directory, sinkUrl } = bench;
  const seed = await seedAccount(database, join(directory, `account-${name}.json`));
  const request = (route, body) => call(stack, seed.apiKey, route, body);
  await request('POST /v1/test/fund', { currency: 'USD', amount: payouts * amountMinor });
  const beneficiary = await request('POST /v1/beneficiaries', {
    type: 'individual',
    name: 'Ada Lovelace',
    country: 'DE',
    currency: 'EUR',
    iban: 'DE89370400440532013000',
  });
  const endpoint = await request('POST /v1/webhook_endpoints', {
    url: `${sinkUrl}/${name}`,
    events: ['payout.settled'],
  });
  return { name, ...seed, request, beneficiaryId: beneficiary.id, endpointId: endpoint.id };
}

/** Creates the body of a batch in advance, so that this is not part of the measurement. */
export function batchBody(customer, count, referenceOf = (index) => `Invoice ${index + 1}`) {
  const payouts = Array.from({ length: count }, (_, index) => ({
    beneficiary: customer.beneficiaryId,
    source_currency: 'USD',
    amount: amountMinor,
    reference: referenceOf(index),
  }));
  return JSON.stringify({ payouts });
}
