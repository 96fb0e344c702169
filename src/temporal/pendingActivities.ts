import { Client, credentials, Metadata } from '@grpc/grpc-js';
import protobuf from 'protobufjs/light.js';
import { z } from 'zod';
import type { TemporalConfig } from '../config.js';
import { connectionOptions, refusalIn } from './connection.js';
// The fields read here, by their numbers in Temporal's public API; decoding skips all others.
import messages from './pendingActivities.json' with { type: 'json' };

const path = '/temporal.api.workflowservice.v1.WorkflowService/DescribeWorkflowExecution';

/** Short: a person waits, and the rest comes from the database. */
const limitMs = 2_000;

// The attributes are a payload, or nothing.
const failureSchema = z.object({
  message: z.string(),
  encodedAttributes: z.instanceof(Uint8Array),
});
const activitySchema = z.object({
  type: z.object({ name: z.string() }),
  attempt: z.number(),
  scheduledTime: z.object({ seconds: z.number() }).nullable(),
  lastFailure: failureSchema.nullable(),
});
const responseSchema = z.object({ activities: z.array(activitySchema) });

/**
 * Returns a line for each pending activity of a workflow: its attempt, why the last one failed, when the
 * next is due. Calls Temporal without its client, which takes longer to load than the rest of a command.
 *
 * @throws Error if Temporal does not answer, refuses the caller or does not know the workflow
 */
export async function pendingActivities(config: TemporalConfig, workflowId: string) {
  const root = protobuf.Root.fromJSON(messages);
  const request = { namespace: config.TEMPORAL_NAMESPACE, execution: { workflowId } };
  const answer = await call(config, root.lookupType('Request').encode(request).finish());
  const type = root.lookupType('Response');
  const response = type.toObject(type.decode(answer), { longs: Number, defaults: true });
  return Promise.all(
    responseSchema.parse(response).activities.map(async (pending) => {
      const last = pending.lastFailure;
      const message = last === null ? '' : await messageOf(last, config);
      const after = message === '' ? '' : `, after: ${message.replace(/\.$/, '')}`;
      const nextMs = (pending.scheduledTime?.seconds ?? 0) * 1_000;
      const next = nextMs > Date.now() ? `, next at ${new Date(nextMs).toISOString()}` : '';
      return `${pending.type.name}: attempt ${pending.attempt}${after}${next}`;
    }),
  );
}

async function call(config: TemporalConfig, request: Uint8Array): Promise<Uint8Array> {
  const { address, tls, apiKey } = connectionOptions(config);
  const { serverNameOverride: name, clientCertPair: pair, serverRootCACertificate } = tls || {};
  const trusted = serverRootCACertificate ?? null;
  const channel = tls
    ? credentials.createSsl(trusted, pair?.key ?? null, pair?.crt ?? null)
    : credentials.createInsecure();
  const client = new Client(address, channel, {
    ...(name && { 'grpc.ssl_target_name_override': name, 'grpc.default_authority': name }),
  });
  const metadata = new Metadata();
  // Temporal Cloud requires it beside the namespace in the request.
  metadata.set('temporal-namespace', config.TEMPORAL_NAMESPACE);
  if (apiKey) metadata.set('authorization', `Bearer ${apiKey}`);
  const same = (message: Uint8Array) => Buffer.from(message);
  const options = { deadline: Date.now() + limitMs };
  try {
    return await new Promise((resolve, reject) => {
      client.makeUnaryRequest(path, same, same, request, metadata, options, (error, answer) => {
        if (error === null) return resolve(answer ?? Buffer.alloc(0));
        const refusal = refusalIn(error, config.TEMPORAL_NAMESPACE);
        reject(refusal === undefined ? error : new Error(refusal));
      });
    });
  } finally {
    client.close();
  }
}

/** Returns a failure's message, decrypted if it is encrypted. If that is impossible, also says why. */
async function messageOf(
  { message, encodedAttributes }: z.infer<typeof failureSchema>,
  { TEMPORAL_ENCRYPTION_KEYS: keys = [] }: TemporalConfig,
): Promise<string> {
  if (encodedAttributes.length === 0) return message;
  try {
    // Loaded only now, because it loads all message definitions.
    const { failureMessage } = await import('./encryption.js');
    return await failureMessage(encodedAttributes, keys);
  } catch (error) {
    return `${message} (${error instanceof Error ? error.message : String(error)})`;
  }
}
