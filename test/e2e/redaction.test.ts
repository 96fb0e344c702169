import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { defaultPayloadConverter, type PayloadCodec } from '@temporalio/common';
import { historyToJSON, JSONToPayload, payloadToJSON } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startProcess } from '../../sandbox/stack/process.js';
import { createApiKey } from '../../src/db/apiKeys.js';
import { encryptingCodec } from '../../src/temporal/encryption.js';
import { eventually } from '../assertions/eventually.js';
import { type CollectedSpan, type Collector, startCollector } from '../fakes/collector.js';
import { type ConnectProxy, startConnectProxy } from '../fakes/connectProxy.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import {
  type ApiAnswer,
  type ApiClient,
  createClient,
  textOf,
  untilStatus,
} from '../fixtures/client.js';
import { createTestAccount } from '../servers/database.js';
import { type Processes, startProcesses } from '../servers/processes.js';
import { quietRuntime, spanSink } from '../servers/workflowBundle.js';

let parts: Processes;
let receiver: Receiver;
/** Receives the traces. */
let collector: Collector;
/** The trace that an integrator has begun, with the integrator's own span. */
const trace = { id: '4bf92f3577b34da6a3ce929d0e0e4736', span: '00f067aa0ba902b7' };
/** The proxy for all webhooks. */
let proxy: ConnectProxy;
/** Secrets that may appear only in the answer that issues them: anyone who has one can use it. */
const secrets = new Map<string, string>();
/** Data that only its account may see, and which neither logs nor histories may contain. */
const personal = new Map<string, string>([
  ['a name', 'Zaphod Plantagenet'],
  ['a reference', 'geheime Rechnung 4711'],
  ['metadata', 'vertraulich-0815'],
]);
const answers: { readonly request: string; readonly text: string }[] = [];

/** An IBAN with valid German check digits (ISO 13616), which nothing else uses. */
function ibanOf(account: string): string {
  const check = 98n - (BigInt(`37040044${account}131400`) % 97n);
  return `DE${String(check).padStart(2, '0')}37040044${account}`;
}

const iban = ibanOf('0907060504');
const wrongIban = `${iban.slice(0, 2)}${iban.slice(2, 4) === '11' ? '12' : '11'}${iban.slice(4)}`;
const accountNumber = '90817263549';

/** Temporal's data is encrypted with the first key. */
const encryptionKeys = `2026-11:${'c3'.repeat(32)} 2026-10:${'d4'.repeat(32)}`;
const codec = encryptingCodec(encryptionKeys.split(' '));

beforeAll(async () => {
  [proxy, receiver, collector] = await Promise.all([
    startConnectProxy(),
    startReceiver(),
    startCollector(),
  ]);
  const password = 'a-password-of-the-egress-proxy';
  secrets.set('proxyPassword', password);
  const WEBHOOK_PROXY_URL = proxy.url.replace('//', `//corridor:${password}@`);
  // The most verbose settings.
  const env = {
    ...{ LOG_LEVEL: 'debug', WEBHOOK_PROXY_URL, TEMPORAL_ENCRYPTION_KEYS: encryptionKeys },
    ...{ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_BSP_SCHEDULE_DELAY: '100' },
  };
  parts = await startProcesses({ env });
  await journey();
});
afterAll(async () => {
  await receiver?.close();
  await parts?.remove();
  await proxy?.stop();
  await collector?.close();
});

/** Wraps a client so that its answers are recorded for the search. */
function recording(client: ApiClient): ApiClient {
  return async (request, options) => {
    const answer = await client(request, options);
    answers.push({ request, text: JSON.stringify(answer.body) });
    return answer;
  };
}

const list = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
const idsOf = (answer: ApiAnswer) => list.parse(answer.body).data.map(({ id }) => id);

/** Everything that an account, a stranger, a bank and an operator do, including the secrets involved. */
async function journey(): Promise<void> {
  const { apiKey } = await createTestAccount(parts.database);
  const unknownKey = createApiKey('test');
  for (const [name, value] of Object.entries({
    apiKey,
    unknownKey,
    iban,
    wrongIban,
    accountNumber,
  })) {
    secrets.set(name, value);
  }
  const plain = createClient(parts.apiUrl, apiKey);
  const client = recording(plain);
  const hidden = 'token-in-a-webhook-url';
  personal.set('a token in a URL', hidden);
  const endpoint = await plain('POST /v1/webhook_endpoints', {
    json: { url: `${receiver.url}?token=${hidden}`, events: ['*'] },
    idempotencyKey: 'endpoint',
  });
  secrets.set('webhookSecret', textOf(endpoint, 'secret'));
  await client(`GET /v1/webhook_endpoints/${textOf(endpoint, 'id')}`);
  await client('GET /v1/webhook_endpoints');

  const name = personal.get('a name');
  const german = { type: 'individual', name, country: 'DE', currency: 'EUR', iban };
  const american = {
    ...german,
    country: 'US',
    currency: 'USD',
    iban: undefined,
    account_number: accountNumber,
    routing_number: '021000021',
  };
  const [inGermany, inAmerica] = [
    textOf(
      await client('POST /v1/beneficiaries', { json: german, idempotencyKey: 'german' }),
      'id',
    ),
    textOf(await client('POST /v1/beneficiaries', { json: american }), 'id'),
  ];
  await failures(client, { german, american, apiKey, unknownKey });
  const payouts = await pay(client, inGermany, inAmerica);
  await operate(payouts.stuck);
  await eventually('the last webhook', 30_000, () =>
    receiver.received.find(({ body }) => body.includes('batch.completed')),
  );
  for (const path of [
    '/v1/payouts?expand[]=beneficiary&limit=100',
    '/v1/beneficiaries',
    '/v1/events?limit=100',
    '/v1/account',
  ]) {
    await client(`GET ${path}`);
  }
  const events = idsOf(await client('GET /v1/events?limit=100'));
  for (const event of events) await client(`GET /v1/events/${event}/deliveries`);
}

type Sent = Readonly<Record<'german' | 'american', object>> &
  Readonly<Record<'apiKey' | 'unknownKey', string>>;

/** Requests that are refused, each with a value that the answer must not repeat. */
async function failures(client: ApiClient, { german, american, apiKey, unknownKey }: Sent) {
  const stranger = recording(createClient(parts.apiUrl, unknownKey));
  expect((await stranger('GET /v1/balances')).status).toBe(401);
  await recording(createClient(parts.apiUrl, `${unknownKey}x`))('GET /v1/balances');
  const refused: readonly (readonly [request: string, json?: object])[] = [
    ['POST /v1/beneficiaries', { ...german, iban: wrongIban }],
    ['POST /v1/beneficiaries', { ...german, iban: [iban] }],
    ['POST /v1/beneficiaries', { ...german, iban: undefined, account_number: accountNumber }],
    ['POST /v1/beneficiaries', { ...american, account_number: `${accountNumber}${accountNumber}` }],
    ['POST /v1/beneficiaries', { ...german, bic: iban }],
    [`GET /v1/payouts/${apiKey}`],
    [`GET /v1/payouts?api_key=${apiKey}`],
    [`GET /${apiKey}`],
  ];
  for (const [request, json] of refused) {
    const { status } = await client(request, json === undefined ? {} : { json });
    expect(status, request).toBeGreaterThanOrEqual(400);
  }
  const conflict = await client('POST /v1/beneficiaries', {
    json: { ...german, name: 'Somebody Else' },
    idempotencyKey: 'german',
  });
  expect(conflict.body).toMatchObject({ code: 'idempotency_key_reused', param: 'name' });
}

async function pay(client: ApiClient, inGermany: string, inAmerica: string) {
  const reference = personal.get('a reference');
  const shared = {
    source_currency: 'USD',
    amount: 5_000,
    metadata: { secret: personal.get('metadata') },
  };
  const quote = await client('POST /v1/quotes', {
    json: { source_currency: 'USD', destination_currency: 'EUR', amount: 5_000 },
  });
  const quoted = await client('POST /v1/payouts', {
    json: {
      quote: textOf(quote, 'id'),
      beneficiary: inGermany,
      reference,
      metadata: shared.metadata,
    },
    headers: {
      traceparent: `00-${trace.id}-${trace.span}-01`,
      tracestate: 'vendor=a-state-of-the-integrator',
      baggage: `for=${encodeURIComponent(personal.get('a name') ?? '')}`,
    },
  });
  const live = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inAmerica, reference },
  });
  const rejected = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inGermany, reference: 'simulate: reject AC04' },
  });
  const unanswered = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inGermany, reference: 'simulate: timeout then settle' },
  });
  const stuck = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inGermany, reference: 'simulate: never settle' },
  });
  const batch = await client('POST /v1/batches', {
    json: {
      payouts: [inGermany, inAmerica].map((beneficiary) => ({ ...shared, beneficiary, reference })),
    },
  });
  await untilStatus(client, textOf(quoted, 'id'), 'settled');
  await untilStatus(client, textOf(live, 'id'), 'settled');
  await untilStatus(client, textOf(rejected, 'id'), 'failed');
  await untilStatus(client, textOf(unanswered, 'id'), 'settled');
  await untilStatus(client, textOf(stuck, 'id'), 'sent');
  await client(`GET /v1/batches/${textOf(batch, 'id')}/payouts`);
  return { stuck: textOf(stuck, 'id') };
}

/** An operator inspects a payout and acts on it. */
async function operate(id: string): Promise<void> {
  const main = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
  const run = async (...args: readonly string[]) => {
    // An operator's reason may contain personal data.
    const reason = personal.get('a reference') ?? '';
    const { stdout, stderr } = await promisify(execFile)(
      process.execPath,
      [main, 'payouts', ...args, '--reason', reason],
      {
        env: {
          ...process.env,
          ...parts.operatorEnv,
          TEMPORAL_ENCRYPTION_KEYS: encryptionKeys,
        },
        timeout: 60_000,
      },
    ).catch((error: unknown) => z.object({ stdout: z.string(), stderr: z.string() }).parse(error));
    answers.push({ request: `corridor payouts ${args.join(' ')}`, text: stdout + stderr });
  };
  await run('show', id);
  await run('cancel', id);
  await run('list');
}

type Stored = {
  readonly name: string;
  readonly type: string;
  /** Everything that Temporal has of the workflow, as stored: payloads are base64-encoded. */
  readonly history: unknown;
  readonly rest: string;
};

/** Every workflow as Temporal stores it. */
async function stored(): Promise<readonly Stored[]> {
  const workflows: Stored[] = [];
  for await (const each of parts.temporal.workflow.list()) {
    const { workflowId, runId, type, memo, typedSearchAttributes } = each;
    const history = await parts.temporal.workflow.getHandle(workflowId, runId).fetchHistory();
    workflows.push({
      name: workflowId,
      type,
      history: JSON.parse(historyToJSON(history)),
      rest: JSON.stringify([workflowId, memo, typedSearchAttributes.getAll()]),
    });
  }
  return workflows;
}

const payloadForm = z.object({
  metadata: z.record(z.string(), z.string()),
  data: z.string().default(''),
});
type StoredPayload = z.infer<typeof payloadForm>;

/** Replaces each payload in a history with the result of a function. */
async function withPayloads(
  history: unknown,
  change: (payload: StoredPayload) => Promise<unknown>,
): Promise<unknown> {
  if (typeof history !== 'object' || history === null) return history;
  const payload = payloadForm.safeParse(history);
  if (payload.success) return change(payload.data);
  if (Array.isArray(history)) return Promise.all(history.map((each) => withPayloads(each, change)));
  const fields = Object.entries(history).map(async ([name, value]) => [
    name,
    await withPayloads(value, change),
  ]);
  return Object.fromEntries(await Promise.all(fields));
}

/** All texts of a history, with its payloads decrypted. */
async function textsOf(history: unknown): Promise<string> {
  const texts: string[] = [];
  const rest = await withPayloads(history, async (payload) => {
    const [decrypted] = await codec.decode([JSONToPayload(payload)]);
    texts.push(Buffer.from(decrypted?.data ?? []).toString());
    return null;
  });
  return `${texts.join('\n')}${JSON.stringify(rest)}`;
}

/** The names of the planted texts that a text contains. */
function foundIn(
  text: string,
  ...planted: readonly ReadonlyMap<string, string>[]
): readonly string[] {
  return planted.flatMap((texts) =>
    [...texts].filter(([, value]) => text.includes(value)).map(([name]) => name),
  );
}

it('every webhook has left through the egress proxy', () => {
  const { host } = new URL(receiver.url);
  expect(new Set(proxy.asked())).toEqual(new Set([host]));
  const left = new Set(proxy.ports());
  expect(receiver.ports.length).toBeGreaterThan(5);
  expect(receiver.ports.filter((port) => !left.has(port))).toEqual([]);
});

describe('secrets and personal data, after a whole journey', () => {
  it('appear in no log line of any process', () => {
    const parted = new Set(parts.lines.map((line) => /"part":"([^"]+)"/.exec(line)?.[1]));
    expect(parted).toContain('api');
    expect(parted).toContain('worker-single');
    expect(parts.lines.length).toBeGreaterThan(50);
    const leaks = parts.lines.filter((line) => foundIn(line, secrets, personal).length > 0);
    expect(leaks).toEqual([]);
  });

  it('appear in no history, memo or search attribute of any workflow', async () => {
    const workflows = await stored();
    for (const { name, history, rest } of workflows) {
      const text = `${await textsOf(history)}${rest}`;
      expect(foundIn(text, secrets, personal), name).toEqual([]);
    }
    const types = workflows.map(({ type }) => type);
    for (const type of ['payout', 'batch', 'batchChunk']) expect(types).toContain(type);
  });

  it('appear in no file of PostgreSQL or Temporal, except references, which are stored as sent', async () => {
    const sealed = new Map([...secrets, ['a name', personal.get('a name') ?? '']]);
    const stored = new Map([['a reference', personal.get('a reference') ?? '']]);
    const found = new Map<string, readonly string[]>();
    const journal = join(parts.directory, 'bank-journal.jsonl');
    const all = readdirSync(parts.directory, { recursive: true, withFileTypes: true });
    for (const { parentPath, name } of all.filter((file) => file.isFile())) {
      const path = join(parentPath, name);
      // PostgreSQL may remove files while they are being read.
      const text = (await readFile(path).catch(() => Buffer.alloc(0))).toString('latin1');
      found.set(path, [...foundIn(text, sealed), ...foundIn(text, stored)]);
    }
    // The bank needs to know the beneficiary.
    expect(found.get(journal)).toEqual(expect.arrayContaining(['iban', 'a name']));
    found.delete(journal);
    const names = new Set([...found.values()].flat());
    expect(names).toEqual(new Set(['a reference']));
    expect(found.size).toBeGreaterThan(1_000);
  });

  it('appear in no trace', async () => {
    expect(collector.bodies.length).toBeGreaterThan(5);
    expect(collector.bodies.flatMap((body) => foundIn(body, secrets, personal))).toEqual([]);
  });

  it('appear in no metric', async () => {
    const ready = /"(?:metrics|ready)":"(http[^"]+)","msg":"the (?:API|worker) is ready"/;
    const urls = parts.lines.flatMap((line) => ready.exec(line)?.[1] ?? []);
    expect(urls.length).toBe(3);
    for (const url of urls) {
      const text = await (await fetch(`${url}/metrics`)).text();
      expect(text).toContain('corridor_');
      expect(foundIn(text, secrets, personal)).toEqual([]);
    }
  });

  it('appear only masked in responses, problems, events and webhooks', async () => {
    const leaks = answers.filter(({ text }) => foundIn(text, secrets).length > 0);
    expect(
      leaks.map(({ request, text }) => [request, foundIn(text, secrets), text.slice(0, 600)]),
    ).toEqual([]);
    const events = await parts.database<
      { body: string }[]
    >`select to_jsonb(e)::text as body from events e`;
    expect(events.length).toBeGreaterThan(5);
    for (const { body } of [...events, ...receiver.received])
      expect(foundIn(body, secrets)).toEqual([]);
    expect(answers.some(({ text }) => text.includes(iban.slice(-4)))).toBe(true);
  });
});

describe('a payout’s trace', () => {
  const inTrace = () => collector.spans().filter(({ traceId }) => traceId === trace.id);

  it('goes from the integrator through request, workflow and activity to the bank', async () => {
    await eventually('the span of the workflow', 10_000, async () =>
      inTrace().find(({ name }) => name === 'RunWorkflow:payout'),
    );
    const byId = new Map(inTrace().map((span) => [span.spanId, span]));
    const call = inTrace().find(({ name }) => name === 'rail submit');
    const way: CollectedSpan[] = [];
    for (let at = call; at !== undefined; at = byId.get(at.parentSpanId ?? '')) way.push(at);
    expect(way.map(({ name }) => name)).toEqual([
      'rail submit',
      'RunActivity:submitPayouts',
      'StartActivity:submitPayouts',
      'RunWorkflow:payout',
      'StartWorkflow:payout',
      'POST /v1/payouts',
    ]);
    expect(way.at(-1)?.parentSpanId).toBe(trace.span);
    // The bank receives the trace, but nothing else that the integrator sent.
    const received = parts.rail.traceHeaders.filter((headers) => headers.length > 0);
    expect(received).toContainEqual([['traceparent', `00-${trace.id}-${call?.spanId}-01`]]);
    expect(new Set(received.flat().map(([name]) => name))).toEqual(new Set(['traceparent']));
    expect(receiver.received.filter(({ headers }) => headers['traceparent'])).toEqual([]);
  });

  it('begins only with requests and operators, and a batch has one span per step', () => {
    const roots = collector.spans().filter(({ parentSpanId }) => !parentSpanId);
    const begun = /^((GET|POST) |(Validate|Handle)Update:operate$)/;
    expect(roots.filter(({ name }) => !begun.test(name)).map(({ name }) => name)).toEqual([]);
    const names = collector.spans().map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['RunWorkflow:batchChunk', 'RunActivity:submitChunk']),
    );
  });

  it.each(['api', 'worker'])(
    'costs the %s nothing when tracing is off: no SDK is loaded',
    async (of) => {
      const main = fileURLToPath(new URL(`../../dist/src/${of}/main.js`, import.meta.url));
      // Without settings the process reports that and exits, after it has loaded everything it starts with.
      const list = `import module from 'node:module';
      process.on('exit', () => console.log(Object.keys(module._cache).join('\\n')));`;
      const preload = `data:text/javascript,${encodeURIComponent(list)}`;
      const { stdout } = await promisify(execFile)(process.execPath, ['--import', preload, main], {
        env: {},
      }).catch((error: unknown) => z.object({ stdout: z.string() }).parse(error));
      const loaded = stdout.split('\n');
      expect(loaded.filter((file) => /@temporalio/.test(file)).length).toBeGreaterThan(5);
      expect(loaded.filter((file) => /opentelemetry.(sdk|exporter|core)/.test(file))).toEqual([]);
    },
  );
});

describe('the data that Temporal stores, with encryption keys', () => {
  /** The numbers, names and times that the SDK's core stores around the encrypted payloads. */
  const ownFields =
    /^\{("(seq|attempt|activity_id|activity_type|complete_time|backoff|original_schedule_time|id|deprecated)":("[^"]{0,64}"|\d+|null|true|false|\{"seconds":\d+,"nanos":\d+\}),?)+\}$/;

  it('has no readable payload without a key', async () => {
    const readable: string[] = [];
    let encrypted = 0;
    for (const { type, history } of await stored()) {
      await withPayloads(history, async ({ metadata, data }) => {
        const encoding = Buffer.from(metadata['encoding'] ?? '', 'base64').toString();
        const text = Buffer.from(data, 'base64').toString();
        // Not a payload for the SDK; it contains only the trace.
        const isTrace = /^\{"traceparent":"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]"\}$/.test(text);
        // Search attributes must be readable, because the server indexes them.
        const isIndexed = metadata['type'] !== undefined;
        if (encoding === 'binary/encrypted') encrypted += 1;
        else if (!isIndexed && !isTrace && !ownFields.test(text)) readable.push(`${type}: ${text}`);
        return null;
      });
    }
    expect(encrypted).toBeGreaterThan(50);
    expect(readable).toEqual([]);
  });

  it('replays with the keys, and not without', async () => {
    quietRuntime();
    const bundleOf = async (name: string) => ({
      code: await readFile(new URL(`../../dist/src/workflows/${name}`, import.meta.url), 'utf8'),
    });
    const traced = await bundleOf('traced-encrypted-bundle.js');
    const replay = async (
      { history, name }: Stored,
      payloadCodecs: readonly PayloadCodec[],
      workflowBundle = traced,
    ) => {
      const dataConverter = { payloadCodecs: [...payloadCodecs] };
      const options = { workflowBundle, dataConverter, sinks: spanSink };
      await Worker.runReplayHistory(options, history, name);
    };
    const workflows = await stored();
    // One workflow of each type; test/replay has the histories of every path.
    for (const type of ['payout', 'batch', 'batchChunk']) {
      const each = workflows.find((workflow) => workflow.type === type);
      if (each === undefined) throw new Error(`There is no workflow ${type}.`);
      await replay(each, [codec]);
      // A worker that does not trace can continue workflows that a tracing worker began.
      await replay(each, [codec], await bundleOf('encrypted-bundle.js'));
      await expect(replay(each, []), type).rejects.toThrow();
    }
  });

  it('is decrypted for the Temporal UI by the codec server, given its token', async () => {
    const token = 'a-codec-token-of-the-tests';
    const origin = 'https://temporal.example.com';
    const server = await startProcess({
      ...{ name: 'codec', command: process.execPath, onLog: () => undefined },
      args: [fileURLToPath(new URL('../../dist/src/codec/main.js', import.meta.url))],
      env: {
        ...{ CODEC_PORT: '0', CODEC_TOKEN: token, CODEC_UI_ORIGIN: origin },
        TEMPORAL_ENCRYPTION_KEYS: encryptionKeys,
      },
      ready: { line: (line) => /"ready":"(http[^"]+)"/.exec(line)?.[1] },
      ...{ readyTimeoutMs: 30_000, stopTimeoutMs: 10_000 },
    });
    const post = (body: string, authorization = `Bearer ${token}`, path = '/decode') =>
      fetch(`${server.announced}${path}`, { method: 'POST', body, headers: { authorization } });
    try {
      const [payload] = await codec.encode([
        defaultPayloadConverter.toPayload({ amount: '12.34' }),
      ]);
      if (payload === undefined) throw new Error('Nothing was encoded.');
      const body = JSON.stringify({ payloads: [payloadToJSON(payload)] });
      const answer = await post(body);
      expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([
        200,
        origin,
      ]);
      const { payloads } = z.object({ payloads: z.array(payloadForm) }).parse(await answer.json());
      const shown = payloads.map((each) =>
        defaultPayloadConverter.fromPayload(JSONToPayload(each)),
      );
      expect(shown).toEqual([{ amount: '12.34' }]);

      const preflight = await fetch(`${server.announced}/decode`, { method: 'OPTIONS' });
      expect([preflight.status, preflight.headers.get('access-control-allow-headers')]).toEqual([
        200,
        'authorization, content-type, x-namespace',
      ]);
      const stranger = encryptingCodec([`2020-01:${'e5'.repeat(32)}`]);
      const strange = (await stranger.encode([payload])).map(payloadToJSON);
      const refused = [
        await post(body, `Bearer ${token}x`),
        await post(body, ''),
        await post(body, undefined, '/encode'),
        await post('{"payloads":[{"data":"?"}]}'),
        await post(JSON.stringify({ payloads: strange })),
        await post(' '.repeat(6 * 1024 * 1024 + 1)),
      ];
      expect(refused.map(({ status }) => status)).toEqual([401, 401, 404, 400, 400, 413]);
      expect(await refused[4]?.json()).toEqual({
        message:
          'TEMPORAL_ENCRYPTION_KEYS: a payload was encrypted with the key 2020-01, which is not set',
      });
    } finally {
      await server.stop();
    }
  });
});
