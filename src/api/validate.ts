import { z } from 'zod';
import { DecodedNumber } from '../contract/decodedNumber.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import { type Decoded, maxProblems, paramName } from './decoded.js';
import { nearestName } from './nearestName.js';

/** What was sent is echoed, so that it can be found in a log, but never at full length. */
const receivedLength = 64;

/** Parameters whose value is not repeated: account numbers and secrets. */
const secretNames = /(^|\[)(iban|account_number|secret|key)\]?$/;

export type Validated<T> = { readonly params: T } | { readonly refusals: readonly Refusal[] };

/**
 * Checks decoded parameters: the typed values, or every refusal in the caller's own notation.
 *
 * @param at where the decoded value stands in the request
 */
export function validate<T>(
  schema: z.ZodType<T>,
  decoded: Decoded,
  at: readonly PropertyKey[] = [],
): Validated<T> {
  const result = schema.safeParse(decoded);
  if (result.success) return { params: result.data };
  // Cut before the nearest names are looked for, which is the work that a caller could pile up.
  const issues = result.error.issues.slice(0, maxProblems);
  const refusals = issues.flatMap((issue) => refusalsOf(issue, decoded, schema, at));
  return { refusals: refusals.slice(0, maxProblems) };
}

function refusalsOf(
  issue: z.core.$ZodIssue,
  decoded: Decoded,
  schema: z.ZodType,
  at: readonly PropertyKey[],
): readonly Refusal[] {
  if (issue.code === 'unrecognized_keys') {
    const known = knownNames(schema, issue.path);
    const expected = known.length === 0 ? 'no parameters' : `one of ${known.join(', ')}`;
    return issue.keys.slice(0, maxProblems).map((name) => {
      const param = paramName([...at, ...issue.path, name]);
      return refuse('parameter_unknown', { param, expected, ...hintOf(name, known) });
    });
  }
  const param = paramName([...at, ...issue.path]);
  const sent = valueAt(decoded, issue.path);
  const expected = issue.message;
  if (sent === undefined) return [refuse('parameter_missing', { param, expected })];
  const hint = typeof sent === 'string' ? hintOf(sent, valuesOf(issue)) : {};
  const details = { param, expected, ...receivedOf(param, sent), ...hint };
  return [refuse('parameter_invalid', details)];
}

/** The values that would have been right, where they are few enough to be listed. */
function valuesOf(issue: z.core.$ZodIssue): readonly string[] {
  if (issue.code === 'invalid_value') return issue.values.map(String);
  const listed = z.object({ values: z.array(z.string()) });
  return (issue.code === 'custom' && listed.safeParse(issue.params).data?.values) || [];
}

function hintOf(sent: string, known: readonly string[]): { detail?: string } {
  const nearest = nearestName(sent, known);
  return nearest === undefined ? {} : { detail: `Did you mean ${nearest}?` };
}

/** The names of the object at a path of the schema; none where it takes any name. */
function knownNames(schema: z.core.$ZodType, path: readonly PropertyKey[]): readonly string[] {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault) {
    return knownNames(schema.def.innerType, path);
  }
  if (schema instanceof z.ZodArray) return knownNames(schema.def.element, path.slice(1));
  if (!(schema instanceof z.ZodObject)) return [];
  const [name, ...rest] = path;
  if (name === undefined) return Object.keys(schema.def.shape);
  const member = schema.def.shape[String(name)];
  return member === undefined ? [] : knownNames(member, rest);
}

function valueAt(decoded: Decoded, path: readonly PropertyKey[]): unknown {
  let value: unknown = decoded;
  for (const name of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, name)?.value;
  }
  return value;
}

function receivedOf(param: string, sent: unknown): { received?: string } {
  if (secretNames.test(param)) return {};
  const text = sent instanceof DecodedNumber ? sent.text : sent;
  if (typeof text === 'object' && text !== null) {
    return { received: Array.isArray(text) ? `a list of ${text.length}` : 'an object' };
  }
  return { received: String(text).slice(0, receivedLength) };
}
