/** What PostgreSQL calls the types of the arrays that our statements take or return (pg_type). */
const arrayTypes = { int4: 1007, text: 1009, int8: 1016, float8: 1022 };

/**
 * How arrays go and come. postgres.js would ask each new connection for the types of arrays, and
 * 3.4.9 does not handle that a connection is lost before it answers: the process ends. An array
 * of another type is refused by the server (22P02); integration/arrays.test.ts looks for columns.
 */
export const arrays = {
  to: arrayTypes.text,
  from: Object.values(arrayTypes),
  serialize: literalOf,
  parse: elementsOf,
};

type Element = string | number | bigint | boolean | null | undefined;

function literalOf(value: string | readonly Element[]): string {
  if (typeof value === 'string') return value;
  const elements = value.map((element) =>
    element === null || element === undefined
      ? 'null'
      : `"${String(element).replaceAll(/[\\"]/g, '\\$&')}"`,
  );
  return `{${elements.join()}}`;
}

/** The elements as text, of an array of one dimension: quoted where they must be, or as they are. */
function elementsOf(literal: string): readonly (string | null)[] {
  return [...literal.matchAll(/"((?:[^"\\]|\\.)*)"|[^{},]+/gs)].map(([plain, quoted]) => {
    if (quoted !== undefined) return quoted.replaceAll(/\\(.)/gs, '$1');
    return plain === 'NULL' ? null : plain;
  });
}
