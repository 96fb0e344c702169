import { webhookEndpointObject } from '../contract/objects.js';
import { transaction } from '../db/client.js';
import { type AttemptResult, recordAttempts } from '../db/deliveries.js';
import { disableEndpoint, longestOutage, recordHealth } from '../db/endpointHealth.js';
import { recordWebhookEvents } from '../db/events.js';
import type { ActivityDeps, DelivererDeps } from './deps.js';

type RecorderDeps = Pick<ActivityDeps, 'database'> & DelivererDeps['deliverer'];

/** Size and maximum age of a group of results written together: a crash repeats only unwritten attempts. */
const writtenTogether = 50;
const writeEveryMs = 1_000;

/** 410 Gone: the receiver wants no more webhooks. */
export const gone = 410;

/** Writes results in groups and every second. `end` throws if some could not be written. */
export function createAttemptRecorder(deps: RecorderDeps) {
  const broken = new AbortController();
  let unwritten: AttemptResult[] = [];
  let writing = Promise.resolve();
  const write = (): Promise<void> => {
    writing = writing
      .then(async () => {
        const results = unwritten;
        unwritten = [];
        await recordAttempts(deps.database, results);
        for (const one of await recordHealth(deps.database, results))
          await disable(deps, one, `No delivery succeeded for ${longestOutage}.`);
        const closed = results.filter(({ httpStatus }) => httpStatus === gone);
        for (const one of new Map(closed.map((each) => [each.endpointId, each])).values()) {
          await disable(deps, one, 'The receiver answered 410 Gone.');
        }
      })
      // When results cannot be written, attempts stop: the next run would repeat all of them.
      .catch((error: unknown) => broken.abort(error));
    return writing;
  };
  const timer = setInterval(() => void write(), writeEveryMs);
  return {
    isBroken: (): boolean => broken.signal.aborted,
    add: async (result: AttemptResult): Promise<void> => {
      unwritten.push(result);
      if (unwritten.length >= writtenTogether) await write();
    },
    end: async (): Promise<void> => {
      clearInterval(timer);
      await write();
      broken.signal.throwIfAborted();
    },
  };
}

/** Disables an endpoint and sends an event about it to the account's other endpoints. */
async function disable(
  { database, begin }: RecorderDeps,
  failed: { readonly endpointId: string; readonly url: string },
  reason: string,
): Promise<void> {
  const hasPendingDeliveries = await transaction(database, async (sql) => {
    const row = await disableEndpoint(sql, failed, reason);
    if (row === undefined) return false;
    const event = {
      accountId: row.accountId,
      type: 'webhook_endpoint.disabled',
      subjectId: row.id,
      facts: webhookEndpointObject(row),
    } as const;
    return (await recordWebhookEvents(sql, [event])).size > 0;
  });
  begin([{ id: failed.endpointId, hasPendingDeliveries }]);
}
