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

function literalOf(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  const elements = value.map((element: unknown) =>
    element === null || element === undefined
      ? 'null'
      : `"${textOf(element).replaceAll(/[\\"]/g, '\\$&')}"`,
  );
  return `{${elements.join()}}`;
}

function textOf(element: unknown): string {
  switch (typeof element) {
    case 'string':
      return element;
    case 'number':
    case 'bigint':
    case 'boolean':
      return element.toString();
    default:
      throw new Error(`An array of a statement cannot hold a ${typeof element}.`);
  }
}

/** The elements as text, of an array of one dimension: quoted where they must be, or as they are. */
function elementsOf(literal: string): readonly (string | null)[] {
  return [...literal.matchAll(/"((?:[^"\\]|\\.)*)"|[^{},]+/gs)].map(([plain, quoted]) => {
    if (quoted !== undefined) return quoted.replaceAll(/\\(.)/gs, '$1');
    return plain === 'NULL' ? null : plain;
  });
}
