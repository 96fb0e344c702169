import { transaction } from '../db/client.js';
import { newId } from '../db/id.js';
import type { WebhookEndpointRow } from '../db/webhookEndpoints.js';
import { addProbe, findProbe, type NewProbe, type ProbeOutcome } from '../db/webhookProbes.js';
import { type RefusalCode, refuse } from '../domain/refusal.js';
import { runProbe, tryTemporal } from '../temporal/workflowCalls.js';
import { type ApiDeps, type Refused, refused } from './route.js';

/** The target of a message: an endpoint, possibly at a URL that is not yet its own. */
type Target = Pick<WebhookEndpointRow, 'accountId' | 'id' | 'url'>;

/**
 * Has a worker send a message to an endpoint, because the API must not connect to receivers, and waits for
 * the outcome. A finished probe is not sent again, but one that never began, as Temporal did not respond, is.
 */
export async function sendProbe(
  deps: ApiDeps,
  { accountId, id: endpointId, url }: Target,
  kind: NewProbe['kind'],
  id = newId('webhookProbe'),
): Promise<ProbeOutcome | Refused> {
  const probe = { id, accountId, endpointId, kind, url };
  const find = () => findProbe(deps.database, accountId, id);
  const known = await find();
  if (known?.outcome) return known.outcome;
  if (!known?.begunAt) {
    const add = () => transaction(deps.database, (sql) => addProbe(sql, probe));
    const reached = await deps.writes(accountId, add);
    if (reached !== undefined) {
      const { seconds, most, host } = reached;
      const expected = `at most ${most} challenges and tests an hour to ${host ?? 'all hosts'}`;
      return refusedFor(seconds, 'rate_limited', expected);
    }
  }
  const run = () => runProbe(deps.temporal, probe);
  const isRun = await tryTemporal(deps, { webhook_endpoint: endpointId }, run);
  const ended = await find();
  if (ended?.outcome) return ended.outcome;
  if (isRun && ended?.begunAt === null) {
    const expected = 'one challenge or test at a time per endpoint, and four per account';
    return refusedFor(1, 'too_many_in_flight', expected);
  }
  return refused(refuse('service_unavailable', { hint: 'Send the request again.' }));
}

function refusedFor(seconds: number, code: RefusalCode, expected: string): Refused {
  const hint = 'Wait for the number of seconds in Retry-After, then retry.';
  return { ...refused(refuse(code, { expected, hint })), headers: { 'Retry-After': `${seconds}` } };
}

const expected =
  'a 2xx response within 15 seconds whose body is data.challenge alone, as text or as {"challenge": "…"}';

/** Sends a challenge to a URL. Returns undefined if it was answered correctly, or else the refusal. */
export async function challenge(
  deps: ApiDeps,
  target: Target,
  param?: 'url',
): Promise<Refused | undefined> {
  const outcome = await sendProbe(deps, target, 'challenge');
  if ('refusals' in outcome) return outcome;
  if (outcome.error === null) return undefined;
  const detail = `The challenge was not answered: ${outcome.error}. Expected ${expected}.`;
  const details = { param, expected, received: outcome.error, detail };
  return refused(refuse('webhook_challenge_failed', details));
}
