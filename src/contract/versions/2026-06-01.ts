type JsonObject = Readonly<Record<string, unknown>>;

/**
 * The specification's shapes: `rate` and `fee` are JSON numbers. Both have at most 15
 * significant digits (the rate 10, the fee's amount at most 10^14), so a number holds them.
 */
export function toNumbers(object: JsonObject): JsonObject {
  if (object['object'] !== 'quote' && object['object'] !== 'payout') return object;
  return { ...object, rate: asNumber(object['rate']), fee: asNumber(object['fee']) };
}

function asNumber(value: unknown): unknown {
  return typeof value === 'string' ? Number(value) : value;
}
