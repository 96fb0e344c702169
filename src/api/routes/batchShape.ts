import { type BatchParams, batchEnvelope, batchItemParams } from '../../contract/params.js';
import { type Refusal, refuse } from '../../domain/refusal.js';
import {
  type Decoded,
  type DecodedObject,
  isList,
  isObject,
  itemLines,
  maxProblems,
  paramName,
  type SentColumns,
} from '../decoded.js';
import { nearestName } from '../nearestName.js';
import { validate, withoutConsequences } from '../route.js';
import { createPace, inSlices, type Steps } from '../slices.js';
import { conflictingParams } from './payouts.js';

/** Parameters that identify what an item uses or is, so that two items cannot share a value. */
const uniqueNames = [
  ['idempotency_key', 'unique in the batch'],
  ['quote', 'unique in the batch: a quote is for one payout'],
] as const;

/**
 * Validates the shape of a whole batch. Returns its typed parameters, or as many of its problems as one
 * response lists. Other requests wait only for a slice of the items, however many there are. A batch with too
 * many items is refused without looking at them.
 */
export async function validateBatch(decoded: DecodedObject, batchKey?: string) {
  const { lines = [], columns } = decoded[itemLines] ?? {};
  const envelope = validate(batchEnvelope, decoded);
  const refusals = 'refusals' in envelope ? [...envelope.refusals] : [];
  const sent = decoded['payouts'];
  const others = refusals.filter(({ param }) => param !== 'payouts');
  if (!isList(sent) || (sent.length > 0 && others.length < refusals.length)) return { refusals };
  // Checked even if there is no item: the only line may be a payout that was read as the header.
  const misnamed = columns === undefined ? [] : refuseColumns(columns, sent);
  if (misnamed.length > 0) return { refusals: [...misnamed, ...others] };
  const payouts: BatchParams['payouts'] = [];
  const pace = createPace();
  for (const [index, item] of sent.entries()) {
    if (refusals.length >= maxProblems) break;
    const validated = validate(batchItemParams, item, ['payouts', index]);
    if ('refusals' in validated) refusals.push(...validated.refusals);
    else payouts.push(validated.params);
    await pace();
  }
  refusals.push(...(await inSlices(conflictsOf(sent, batchKey))));
  if (refusals.length > 0 || 'refusals' in envelope) {
    return { refusals: withLines(withoutConsequences(refusals), lines).slice(0, maxProblems) };
  }
  return { params: { ...envelope.params, payouts } };
}

/** Adds the line of each refused item, if the body had lines. */
function withLines(refusals: readonly Refusal[], lines: readonly number[]): readonly Refusal[] {
  return refusals.map((refusal) => {
    const [, index] = /^payouts\[(\d+)\]/.exec(refusal.param ?? '') ?? [];
    const line = lines[Number(index)];
    return line === undefined ? refusal : { ...refusal, line };
  });
}

/**
 * Refuses wrong columns of a CSV body, which would cause every row to be refused. A column that is empty in
 * every row counts as not sent, whatever its name.
 */
function refuseColumns(columns: SentColumns, items: readonly Decoded[]): readonly Refusal[] {
  const { names, line } = columns;
  const roots = Object.fromEntries(names.map((name) => [name.replace(/\[.*/s, ''), '']));
  const known = Object.keys(batchItemParams.shape);
  if (Object.keys(roots).every((root) => nearestName(root, known) === undefined)) {
    const expected = 'a header with the names of the columns';
    const detail = `The first line must be ${expected}, such as beneficiary,source_currency,amount.`;
    return [refuse('body_malformed', { expected, detail, line })];
  }
  const isSent = (name: string) => items.some((item) => isObject(item) && name in item);
  const validated = validate(batchItemParams, roots);
  const wrong = 'refusals' in validated ? validated.refusals : [];
  const ofNames = [...wrong, ...conflictingParams(roots)].filter(
    ({ code, param = '' }) =>
      code === 'parameter_missing' || (code === 'parameter_unknown' && isSent(param)),
  );
  return withoutConsequences(ofNames).map((refusal) => ({ ...refusal, line }));
}

/**
 * Finds conflicts within an item, or between two items. Uses only the names and texts that were sent, so that
 * an item that is invalid in another way counts too.
 */
function* conflictsOf(items: readonly Decoded[], batchKey?: string): Steps<readonly Refusal[]> {
  const refusals: Refusal[] = [];
  const firstWith = new Map<string, string>();
  if (batchKey !== undefined) firstWith.set(`idempotency_key ${batchKey}`, 'The batch itself');
  for (const [index, item] of items.entries()) {
    if (refusals.length >= maxProblems) break;
    yield;
    if (!isObject(item)) continue;
    refusals.push(...conflictingParams(item, (name) => paramName(['payouts', index, name])));
    for (const [name, expected] of uniqueNames) {
      const value = item[name];
      if (typeof value !== 'string') continue;
      const first = firstWith.get(`${name} ${value}`);
      const hint = `${first} has the same ${name}.`;
      const param = paramName(['payouts', index, name]);
      if (first === undefined) firstWith.set(`${name} ${value}`, paramName(['payouts', index]));
      else refusals.push(refuse('parameter_invalid', { param, expected, hint }));
    }
  }
  return refusals.slice(0, maxProblems);
}
