import { Corridor, CorridorConnectionError } from '@corridor/client';

const corridor = new Corridor({ maxRetries: 1 });

async function lossOf(call: () => Promise<unknown>) {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof CorridorConnectionError)) throw error;
    const { idempotencyKey: key, attempts, message } = error;
    return [key ?? null, attempts, key === undefined || message.includes(key)];
  }
}

async function countBalances() {
  let count = 0;
  for await (const _balance of corridor.balances.list()) count += 1;
  return count;
}

const order = { beneficiary: 'bnf_1', source_currency: 'USD', amount: 2_000 };
const writes = [
  await lossOf(() => corridor.payouts.create(order)),
  await lossOf(() => corridor.payouts.create(order)),
];
const lists = [await lossOf(countBalances), await lossOf(countBalances)];
console.log(JSON.stringify({ writes, lists }));
