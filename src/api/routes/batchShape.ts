import { type BatchParams, batchEnvelope, batchItemParams } from '../../contract/params.js';
import { type Refusal, refuse } from '../../domain/refusal.js';
import {
  type Decoded,
  type DecodedObject,
  isList,
  isObject,
  maxProblems,
  paramName,
} from '../decoded.js';
import { type Validated, validate } from '../route.js';
import { createPace, inSlices, type Steps } from '../slices.js';
import { conflictingParams } from './payouts.js';

/** Parameters that say which one thing an item uses or is, so that two items cannot share it. */
const uniqueNames = [
  ['idempotency_key', 'a key that no other item of the batch has'],
  ['quote', 'a quote that no other item of the batch has'],
] as const;

/**
 * Judges the shape of a batch as a whole: its typed parameters, or all that is wrong with them,
 * as far as one answer lists it. Whatever the number of items, other requests wait only for a
 * slice of them; too many are refused without being looked at.
 */
export async function validateBatch(decoded: DecodedObject): Promise<Validated<BatchParams>> {
  const envelope = validate(batchEnvelope, decoded);
  const refusals = 'refusals' in envelope ? [...envelope.refusals] : [];
  const sent = decoded['payouts'];
  if (!isList(sent) || refusals.some(({ param }) => param === 'payouts')) return { refusals };
  const payouts: BatchParams['payouts'] = [];
  const pace = createPace();
  for (const [index, item] of sent.entries()) {
    if (refusals.length >= maxProblems) break;
    const validated = validate(batchItemParams, item, ['payouts', index]);
    if ('refusals' in validated) refusals.push(...validated.refusals);
    else payouts.push(validated.params);
    await pace();
  }
  refusals.push(...(await inSlices(misfitsOf(sent))));
  if (refusals.length > 0 || 'refusals' in envelope) {
    return { refusals: refusals.slice(0, maxProblems) };
  }
  return { params: { ...envelope.params, payouts } };
}

/**
 * What does not fit together in an item, or between two of them, of the items as they were
 * sent: their names and texts alone decide, so that an item that is wrong otherwise counts too.
 */
function* misfitsOf(items: readonly Decoded[]): Steps<readonly Refusal[]> {
  const refusals: Refusal[] = [];
  const firstWith = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    if (refusals.length >= maxProblems) break;
    yield;
    if (!isObject(item)) continue;
    refusals.push(...conflictingParams(item, (name) => paramName(['payouts', index, name])));
    for (const [name, expected] of uniqueNames) {
      const value = item[name];
      if (typeof value !== 'string') continue;
      const first = firstWith.get(`${name} ${value}`);
      if (first === undefined) firstWith.set(`${name} ${value}`, index);
      else {
        const detail = `${paramName(['payouts', first, name])} is the same.`;
        const param = paramName(['payouts', index, name]);
        refusals.push(refuse('parameter_invalid', { param, expected, detail }));
      }
    }
  }
  return refusals.slice(0, maxProblems);
}
