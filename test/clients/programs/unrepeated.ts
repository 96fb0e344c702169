import { Corridor, CorridorConnectionError, CorridorProblem } from '@corridor/client';

const corridor = new Corridor();

async function failureOf(call: Promise<unknown>) {
  try {
    return await call;
  } catch (error) {
    if (error instanceof CorridorProblem) return [error.code, error.attempts];
    if (error instanceof CorridorConnectionError) {
      const code = error.cause instanceof CorridorProblem ? error.cause.code : null;
      return [error.status, error.attempts, code, error.idempotencyKey !== undefined];
    }
    return error instanceof Error ? error.name : String(error);
  }
}

const quote = { source_currency: 'USD', destination_currency: 'EUR', amount: 100 };
const failures = [
  await failureOf(corridor.payouts.cancel('po_1')),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote)),
  await failureOf(corridor.quotes.create(quote, { maxRetries: 0 })),
  await failureOf(corridor.quotes.create(quote, { maxRetries: 0 })),
];
// The response never arrives, so only the signal ends the request.
const signal = AbortSignal.timeout(100);
const aborted = await failureOf(corridor.account.retrieve({ signal }));
console.log(JSON.stringify({ failures, aborted }));
