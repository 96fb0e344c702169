import { randomBytes } from 'node:crypto';
import { webhookEndpointObject } from '../contract/objects.js';
import { render, versionNamed } from '../contract/versions/index.js';
import { type BegunProbe, beginProbe, endProbe } from '../db/webhookProbes.js';
import { webhookSecretsOf } from '../db/webhookSecrets.js';
import { createKeyedLimit } from '../keyedLimit.js';
import { factsOf } from '../webhooks/sender.js';
import type { WebhookProbeInput } from '../workflows/messages.js';
import type { ActivityDeps } from './deps.js';

type ProbeDeps = Pick<ActivityDeps, 'database' | 'keyring' | 'sender'>;

/** Length of a challenge: as long as a secret, so that it cannot be guessed. */
const challengeBytes = 32;

/**
 * Maximum concurrent probes of an account. A receiver that never answers occupies each for 15 s, and
 * with it a worker slot that the deliveries of all accounts need.
 */
const probesOfAccount = 4;

/** Challenges and tests: single messages that are neither recorded as deliveries nor retried. */
export function probeActivities({ database, keyring, sender }: ProbeDeps) {
  const limit = createKeyedLimit(probesOfAccount, 0);
  const send = async (id: string): Promise<void> => {
    const begun = await beginProbe(database, id);
    if (begun === undefined) return;
    const challenge = randomBytes(challengeBytes).toString('base64url');
    const secrets = await webhookSecretsOf(database, keyring, begun.id);
    const startedAtMs = performance.now();
    const sent = await sender.send({
      ...{ id, account: begun.accountId, url: begun.url, signature: begun.signature, secrets },
      timestampSeconds: Math.floor(Date.now() / 1000),
      body: bodyOf(id, begun, challenge),
      readsAnswer: true,
    });
    const latency = Math.round(performance.now() - startedAtMs);
    const { httpStatus: http_status, answer: response, error: failure } = factsOf(sent);
    const isTest = begun.kind === 'test';
    const error = failure ?? (isTest ? null : wrongAnswer(response, challenge));
    const kept = { delivered: error === null, http_status, latency_ms: latency, error };
    await endProbe(database, id, { ...kept, response: isTest ? response : null });
  };
  return {
    /**
     * Sends a challenge or a test once and records the outcome. At the account's limit it sends nothing.
     * It returns nothing, because neither a challenge nor a receiver's answer belongs in a history.
     */
    sendProbe: async ({ probeId, accountId }: WebhookProbeInput): Promise<void> =>
      limit(accountId, () => send(probeId)),
  };
}

function bodyOf(id: string, { kind, ...endpoint }: BegunProbe, challenge: string): string {
  const version = versionNamed(endpoint.apiVersion);
  const type = `webhook_endpoint.${kind}`;
  const timestamp = new Date().toISOString();
  const data =
    kind === 'challenge'
      ? { webhook_endpoint: endpoint.id, challenge }
      : render(webhookEndpointObject(endpoint), version);
  return JSON.stringify({ id, type, timestamp, api_version: version, data });
}

/**
 * Returns what is wrong with the answer to a challenge, or null. It must be the challenge alone, as text
 * or in a JSON object: a receiver that echoes every message does not prove that it reads them.
 */
function wrongAnswer(answer: string | null, challenge: string): string | null {
  const text = answer?.trim() ?? '';
  const proof = /^\{\s*"challenge"\s*:\s*"([\w-]+)"\s*\}$/.exec(text)?.[1] ?? text;
  return proof === challenge ? null : 'the response body was not the challenge';
}
