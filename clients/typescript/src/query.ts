/** A value of a query parameter. A nested object is written in brackets: `created[gte]=2026-11-01`. */
export type QueryValue =
  | string
  | number
  | boolean
  | undefined
  | readonly string[]
  | { readonly [name: string]: string | undefined };

/** Encodes query parameters as the API expects them. Omits undefined values. */
export function queryOf(params: { readonly [name: string]: QueryValue }): string {
  const pairs = Object.entries(params).flatMap(([name, value]) => pairsOf(name, value));
  return pairs.length === 0 ? '' : `?${new URLSearchParams(pairs).toString()}`;
}

function pairsOf(name: string, value: QueryValue): [string, string][] {
  if (value === undefined) return [];
  if (typeof value !== 'object') return [[name, String(value)]];
  if (isList(value)) return value.map((item) => [`${name}[]`, item]);
  return Object.entries(value).flatMap(([key, item]) => pairsOf(`${name}[${key}]`, item));
}

/** A type guard, because Array.isArray does not narrow read-only arrays. */
function isList(value: readonly string[] | object): value is readonly string[] {
  return Array.isArray(value);
}
