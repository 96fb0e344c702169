type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Converts to the specification's shapes, where `rate` and `fee` are JSON numbers. Both have at most 15
 * significant digits (the rate 10, the fee's amount at most 10^14), so a number holds them.
 */
export function toNumbers(object: JsonObject): JsonObject {
  const { object: type, rate, fee } = object;
  if (type === 'rate') return { ...object, rate: asNumber(rate) };
  if (type !== 'quote' && type !== 'payout') return object;
  return { ...object, rate: asNumber(rate), fee: asNumber(fee) };
}

function asNumber(value: unknown): unknown {
  return typeof value === 'string' ? Number(value) : value;
}
