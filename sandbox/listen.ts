import { createHash } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { readJson, writeJson } from '../src/cli/jsonFile.js';
import { UsageError } from '../src/cli/usage.js';
import { readCallerConfig } from '../src/config.js';
import { eventTypes } from '../src/domain/event.js';
import { createWebhookSecret, signWebhook, webhookHeaders } from '../src/webhooks/signature.js';
import { interruption } from './interruption.js';

/** The flags as they were typed. */
export type ListenOptions = {
  /** The data directory of the local stack, where `listen` also stores its position. */
  readonly directory: string;
  readonly forward?: string | undefined;
  readonly from?: string | undefined;
  readonly events?: string | undefined;
};

/** The last forwarded event and the signing secret of the receiver, kept between runs. */
const stateShape = z.object({
  sequence: z.number().int().optional(),
  secret: z.string().default(createWebhookSecret),
});

const eventShape = z.object({
  id: z.string(),
  type: z.string(),
  timestamp: z.string(),
  sequence: z.number().int(),
  data: z.record(z.string(), z.unknown()),
});
type FeedEvent = z.infer<typeof eventShape> & { readonly api_version: string | null };
const pageShape = z.object({ data: z.array(eventShape) });

/** Duration of a long poll: below the API's maximum of 30 s, which is also a usual proxy timeout. */
const waitSeconds = 25;
/** Timeout of a request: the API answers within 13 s after the wait. */
const answerLimitMs = (waitSeconds + 15) * 1_000;
/** Minimum pause between polls: an API that is shutting down answers at once, without waiting. */
const leastPauseMs = 1_000;
/** Maximum pause: even after a long outage, polling should resume soon. */
const mostPauseMs = 15_000;
/** Timeout of a receiver, the same as the service's for webhooks. */
const receiverLimitMs = 15_000;

/**
 * Prints the account's events as they arrive, until Ctrl-C, and forwards them to a receiver on this
 * machine, signed like webhooks. Resumes after the last event of the previous run.
 *
 * @returns the exit code
 * @throws UsageError for invalid flags, and for a key that the API refuses
 */
export async function listen(options: ListenOptions): Promise<number> {
  const wanted = typesOf(options.events);
  const forward = receiverOf(options.forward);
  const caller = await callerOf(options.directory);
  const file = join(options.directory, `listen-${fingerprintOf(caller)}.json`);
  const { secret, sequence: last } = (await readJson(file, stateShape)) ?? stateShape.parse({});
  const stop = new AbortController();
  void interruption().then(() => stop.abort());
  endWithParent(stop);
  const feed = feedOf(caller, stop.signal);

  let sequence: number | undefined =
    positionOf(options.from) ?? last ?? (await feed.lastSequence());
  if (sequence === undefined) return 0;
  await mkdir(options.directory, { recursive: true, mode: 0o700 });
  await writeJson(file, { sequence, secret });
  console.log(`Events of ${caller.apiUrl} after ${sequence}. Press Ctrl-C to stop.`);
  if (forward !== undefined) console.log(`Forwarding to ${forward}, signed with ${secret}`);
  const take = async (event: FeedEvent) => {
    const status = forward && (await send(event, { url: forward, secret, signal: stop.signal }));
    const received = status === undefined ? '' : `  -> ${status}`;
    if (!stop.signal.aborted) console.log(lineOf(event) + received);
  };
  // Runs until Ctrl-C.
  for (;;) {
    const events = await feed.after(sequence);
    for (const event of events ?? []) {
      if (wanted?.has(event.type) !== false) await take(event);
      if (stop.signal.aborted) return 0;
      sequence = event.sequence;
      await writeJson(file, { sequence, secret });
    }
    if (events === undefined || stop.signal.aborted) return 0;
  }
}

/** Stops when the parent exits: `npx` does not forward signals, so killing it would leave this running. */
function endWithParent(stop: AbortController): void {
  const parent = process.ppid;
  const look = () => {
    if (process.ppid !== parent) stop.abort();
  };
  setInterval(look, leastPauseMs).unref();
}

type Caller = { readonly apiUrl: string; readonly apiKey: string };

const localStack = z.object({ api_url: z.string(), api_key: z.string() });

/** Returns the API and key from the environment, or those of the local stack's own account. */
async function callerOf(directory: string): Promise<Caller> {
  const { CORRIDOR_API_URL: apiUrl, CORRIDOR_API_KEY: apiKey } = readCallerConfig(process.env);
  if (apiUrl !== undefined && apiKey !== undefined) return { apiUrl, apiKey };
  // If only one is set, the other is not taken from the stack: a key must only go to its own API.
  const isHalf = apiUrl !== undefined || apiKey !== undefined;
  const stack = isHalf ? undefined : await readJson(join(directory, 'stack.json'), localStack);
  if (stack !== undefined) return { apiUrl: stack.api_url, apiKey: stack.api_key };
  throw new UsageError(
    `Set both CORRIDOR_API_URL and CORRIDOR_API_KEY, or neither while corridor start runs in ${directory}.`,
  );
}

const fingerprintOf = ({ apiUrl, apiKey }: Caller) =>
  createHash('sha256').update(`${apiUrl} ${apiKey}`).digest('hex').slice(0, 16);

/** Reads the event feed, retrying after failures. Its methods return undefined once the signal is aborted. */
function feedOf({ apiUrl, apiKey }: Caller, signal: AbortSignal) {
  const read = async (query: string, prefer: string) => {
    const answer = await fetch(`${apiUrl.replace(/\/+$/, '')}/v1/events?${query}`, {
      headers: { authorization: `Bearer ${apiKey}`, prefer },
      signal: AbortSignal.any([signal, AbortSignal.timeout(answerLimitMs)]),
    });
    const text = await answer.text();
    if (answer.status >= 400 && answer.status < 500 && ![408, 429].includes(answer.status)) {
      throw new UsageError(`The API refused to list events (${answer.status}): ${text}`);
    }
    if (!answer.ok) throw new Error(`the API answered ${answer.status}`);
    const { data } = pageShape.parse(JSON.parse(text));
    const version = answer.headers.get('corridor-version');
    return data.map((event) => ({ ...event, api_version: version }));
  };
  return {
    lastSequence: async () => {
      const newest = await retryUntilAborted(() => read('limit=1', ''), signal);
      return newest && (newest[0]?.sequence ?? 0);
    },
    after: async (sequence: number) => {
      const startedMs = performance.now();
      const query = `after=${sequence}&limit=100`;
      const events = await retryUntilAborted(() => read(query, `wait=${waitSeconds}`), signal);
      const restMs = leastPauseMs - (performance.now() - startedMs);
      if (events?.length === 0 && restMs > 0) await pause(restMs, signal);
      return events;
    },
  };
}

/** Retries until it succeeds, with exponential backoff; undefined once the signal is aborted. */
async function retryUntilAborted<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
): Promise<T | undefined> {
  // No limit but Ctrl-C: an API that is down will come back.
  for (let pauseMs = leastPauseMs; !signal.aborted; pauseMs = Math.min(pauseMs * 2, mostPauseMs)) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof UsageError) throw error;
      if (signal.aborted) return undefined;
      console.error(
        `The events could not be read (${reasonOf(error)}). Trying again in ${pauseMs} ms.`,
      );
    }
    await pause(pauseMs, signal);
  }
  return undefined;
}

/** Waits until the time is over or the signal is aborted, whichever is first. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
}

type Target = { readonly url: string; readonly secret: string; readonly signal: AbortSignal };

/** Sends an event as a webhook. Returns the receiver's HTTP status, or the reason for the failure. */
async function send(
  { id, type, timestamp, api_version, sequence, data }: FeedEvent,
  { url, secret, signal }: Target,
): Promise<string> {
  const body = JSON.stringify({ id, type, timestamp, api_version, sequence, data });
  const message = { id, timestampSeconds: Math.floor(Date.now() / 1_000), body };
  try {
    const answer = await fetch(url, {
      method: 'POST',
      headers: webhookHeaders(message, signWebhook({ ...message, secrets: [secret] })),
      body,
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(receiverLimitMs)]),
    });
    await answer.body?.cancel();
    return String(answer.status);
  } catch (error) {
    return reasonOf(error);
  }
}

/** Returns the cause of an error, because fetch's own message is only "fetch failed". */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (!(cause instanceof Error)) return String(cause);
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.message;
}

/** E.g. "2026-11-22T06:59:52.239Z  17  payout.settled  po_01m8…  settled  1066.54 EUR". */
function lineOf({ timestamp, sequence, type, data }: FeedEvent): string {
  const { id, status, receive_amount: amount, destination_currency: currency } = data;
  const sum = typeof amount === 'string' ? [`${amount} ${String(currency)}`] : [];
  return [timestamp, sequence, type, id, status, ...sum].join('  ');
}

/** Parses the requested types; undefined means all, including types added later. */
function typesOf(list: string | undefined): ReadonlySet<string> | undefined {
  if (list === undefined) return undefined;
  const typed = list.split(',').map((type) => type.trim());
  const known = new Set<string>(eventTypes);
  const unknown = typed.find((type) => !known.has(type));
  if (unknown === undefined) return new Set(typed);
  throw new UsageError(`--events expects a list of ${eventTypes.join(', ')}, not "${unknown}".`);
}

function positionOf(from: string | undefined): number | undefined {
  if (from === undefined) return undefined;
  if (/^\d{1,15}$/.test(from)) return Number.parseInt(from, 10);
  throw new UsageError('--from expects the sequence of an event, or 0 for all there are.');
}

/** Only URLs on this machine, so that an account's events cannot be sent elsewhere by mistake. */
function receiverOf(url: string | undefined): string | undefined {
  if (url === undefined) return undefined;
  const { protocol, hostname } = URL.canParse(url) ? new URL(url) : { protocol: '', hostname: '' };
  const isLocal = ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
  if (isLocal && /^https?:$/.test(protocol)) return url;
  throw new UsageError(
    '--forward expects a URL of this machine, such as http://127.0.0.1:9000/webhooks.',
  );
}
