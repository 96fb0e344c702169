import { createHmac } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { freePort } from '../../sandbox/stack/ports.js';
import { webhookExample } from '../../src/contract/webhookExamples.js';
import { webhookSecretsOf } from '../../src/db/webhookSecrets.js';
import { publicKeySet } from '../../src/webhooks/signature.js';
import { startReceiver } from '../fakes/receiver.js';
import { startUnkindProxy, type UnkindProxy } from '../fakes/unkindProxy.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { keyring } from '../fixtures/keyring.js';
import { webhookKeys } from '../fixtures/webhookKeys.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';
import { type Caller, languages } from './languages.js';

let system: TestSystem;

beforeAll(async () => {
  const preparing = Promise.all(languages.map(({ prepare }) => prepare()));
  // A failed preparation is reported once the system has started: otherwise nothing would stop the system.
  preparing.catch(() => undefined);
  system = await startSystem();
  await preparing;
});
afterAll(() => system.stop());

/** Opens a separate account for a program, so that its lists and its feed contain only its own objects. */
async function openCaller(apiUrl = system.apiUrl): Promise<Caller & { accountId: string }> {
  const { apiKey, account } = await createTestAccount(system.database);
  return { apiUrl, apiKey, accountId: account.id };
}

type Finished = (work: () => Promise<void>) => void;

/** Starts a separate proxy for a program. */
async function openProxy(onTestFinished: Finished): Promise<UnkindProxy> {
  const proxy = await startUnkindProxy(system.apiUrl);
  onTestFinished(() => proxy.close());
  return proxy;
}

/** A refusal as the API words it, for codes that the API cannot be made to return at will. */
function refusal(code: string, status: number, headers: Record<string, string> = {}) {
  const problem = { type: `/docs/errors#${code}`, title: code, status, code, detail: code };
  const body = JSON.stringify({
    ...problem,
    errors: [{ code, detail: code }],
    request_id: 'req_0',
  });
  return { status, headers: { ...headers, 'content-type': 'application/problem+json' }, body };
}

/** A response of the API with exactly this body. */
function answerOf(body: unknown, status = 200) {
  const headers = { 'content-type': 'application/json' };
  return { status, headers, body: JSON.stringify(body) };
}

/** A sent payout with some fields replaced. */
function payoutAs(own: { readonly id: string; readonly status?: string }) {
  const { data } = webhookExample('payout.sent', '2026-11-15');
  return { ...Object(data), ...own };
}

const keysOf = (proxy: UnkindProxy, route: string) => proxy.seen(route).map(({ key }) => key);

describe.concurrent.each(languages)('the $name client', ({ name, run, startReadme }) => {
  it('quotes, pays once, waits, and passes on refusals in full', async () => {
    const result = await run('journey', await openCaller());
    expect(result).toMatchObject({
      rate: expect.stringMatching(/^0\.\d+$/),
      isSame: true,
      settled: ['settled', expect.any(String), expect.any(String), { order: '17' }],
      waited: ['settled', ['pending', 'processing', 'sent', 'settled']],
      // Whatever it had reached within its second.
      unsettled: expect.stringMatching(/^(pending|processing|sent)$/),
      failed: ['failed', 'AC04'],
      endpoint: [['payout.settled', 'payout.failed'], 'whsec_', false, true],
      expanded: ['Ada Lovelace', 'used'],
      ...{ mode: 'test', balances: ['EUR', 'USD'], funded: 'USD', corridors: true },
      fields: expect.arrayContaining(['name', 'iban']),
      missing: { code: 'not_found', status: 404, isTold: true },
      malformed: {
        ...{ code: 'parameter_invalid', status: 400, param: 'quote', received: 'x', isTold: true },
        expected: expect.stringContaining('the id of a quote'),
        others: expect.arrayContaining(['quote', 'amount']),
      },
      refused: { code: 'insufficient_funds', status: 422, kept: expect.stringMatching(/^po_/) },
    });
  });

  it('sends batches from lists, iterables and CSV, and pages through results', async () => {
    const result = await run('batches', await openCaller());
    const orders = ['1', '2', '3', '4', '5', '6', '7', '8', 'Grüße'];
    expect(result).toEqual({
      preview: [4, ['beneficiary_not_found']],
      csvPreview: 2,
      modes: ['all_or_nothing', 'all_or_nothing', 'best_effort', 'best_effort'],
      counts: [...[3, 3, 2, 1].map((count) => ['completed', count])],
      ...{ orders, listed: 9, isBackwards: true, page: [3, true] },
      filtered: [1, false, 0, 'Ada Lovelace'],
    });
  });

  it('pays once, whatever requests and answers are lost', async ({ onTestFinished }) => {
    const proxy = await openProxy(onTestFinished);
    const now = { 'retry-after': '1' };
    proxy.faults('POST /v1/beneficiaries', 'silence', { status: 502, body: '<html>' });
    const [unavailable, limited] = [
      refusal('service_unavailable', 503, now),
      refusal('rate_limited', 429, now),
    ];
    const first3 = ['answer lost', unavailable, limited] as const;
    proxy.faults('POST /v1/payouts', ...first3, 'passed on', 'answer cut', 'answer lost');
    proxy.faults('POST /v1/batches', 'answer lost', refusal('request_in_progress', 409, now));
    const caller = await openCaller(proxy.url);
    const result = await run('retries', caller);

    const client = createClient(system.apiUrl, caller.apiKey);
    const { body: paid } = await client('GET /v1/payouts?limit=100');
    expect(paid['data']).toHaveLength(1 + 3 + 1);
    const { body: batches } = await client('GET /v1/batches');
    expect(batches['data']).toHaveLength(1);
    const { body: beneficiaries } = await client('GET /v1/beneficiaries');
    expect(beneficiaries['data']).toHaveLength(1);
    const [first, ...later] = keysOf(proxy, 'POST /v1/payouts');
    expect(result).toMatchObject({ key: later.at(-1), isAdvised: true, isUrgent: true });
    const key = later.at(-1);
    expect(later).toEqual([first, first, first, key, key, key]);
    expect(key).not.toBe(first);
    expect(new Set(keysOf(proxy, 'POST /v1/batches')).size).toBe(1);
    expect(keysOf(proxy, 'POST /v1/batches')).toHaveLength(3);
  });

  it('keeps waiting for a payout, whatever reads fail', async ({ onTestFinished }) => {
    const proxy = await openProxy(onTestFinished);
    const ids = ['po_found', 'po_lost', 'po_refused'];
    proxy.faults('POST /v1/payouts', ...ids.map((id) => answerOf(payoutAs({ id }), 201)));
    const always = Array.from({ length: 9 }, () => 'hung up' as const);
    proxy.faults('GET /v1/payouts/po_lost', ...always);
    const settled = answerOf(payoutAs({ id: 'po_found', status: 'settled' }));
    const unavailable = refusal('service_unavailable', 503);
    proxy.faults('GET /v1/payouts/po_found', 'hung up', unavailable, settled);
    proxy.faults('GET /v1/payouts/po_refused', refusal('scope_missing', 403));
    const { data: batch } = webhookExample('batch.completed', '2026-11-15');
    const open = { ...Object(batch), id: 'bat_1', status: 'processing', completed_at: null };
    proxy.faults('GET /v1/batches/bat_1', answerOf(open), ...always);
    expect(await run('waits', await openCaller(proxy.url))).toEqual([
      ['po_found', 'settled'],
      ['po_lost', 'sent', 'CorridorConnectionError'],
      ['po_refused', 'sent', 'CorridorProblem'],
      ['bat_1', 'processing', 'CorridorConnectionError'],
    ]);
    expect(proxy.seen('GET /v1/payouts/po_found')).toHaveLength(3);
    expect(proxy.seen('GET /v1/payouts/po_refused')).toHaveLength(1);
  });

  it('rejects malformed answers', async ({ onTestFinished }) => {
    const proxy = await openProxy(onTestFinished);
    // Text that begins like JSON but contains a byte that is invalid in UTF-8.
    const bytes = { status: 200, body: Buffer.from('{"\xff"', 'latin1') };
    // Python's models validate what they read, so a wrong shape is refused; TypeScript has no types at run
    // time.
    const other = name === 'Python' ? answerOf({ ok: true }) : bytes;
    proxy.faults('POST /v1/payouts', bytes, bytes, other, other);
    const balance = { object: 'balance', currency: 'USD', available: '0.00', held: '0.00' };
    const cutOff = [{ ...balance, total: '0.00' }];
    const pages = [cutOff, []].map((data) => answerOf({ object: 'list', data, has_more: true }));
    proxy.faults('GET /v1/balances', ...pages);
    const result = await run('foreign', await openCaller(proxy.url));
    const [first, again, second, last] = keysOf(proxy, 'POST /v1/payouts');
    expect([again, last]).toEqual([first, second]);
    expect(first).not.toBe(second);
    expect(result).toEqual({
      writes: [first, second].map((key) => [key, 2, true]),
      lists: [
        [null, 1, true],
        [null, 1, true],
      ],
    });
  });

  it('does not retry what would fail in the same way', async ({ onTestFinished }) => {
    const proxy = await openProxy(onTestFinished);
    proxy.faults('POST /v1/payouts/po_1/cancel', refusal('payout_not_cancelable', 409));
    const hour = { 'retry-after': '3600' };
    proxy.faults(
      'POST /v1/quotes',
      ...[refusal('rate_limited', 429, hour), refusal('rate_unavailable', 503)],
      ...[
        { status: 307, headers: { location: '/v1/payouts' } },
        { status: 500, body: 'Oops' },
      ],
      // After a lost answer, a refusal that is not the request's own leaves open whether it was executed.
      ...['answer lost' as const, refusal('api_key_invalid', 401)],
      ...[
        refusal('rate_unavailable', 503, { 'retry-after': '1' }),
        refusal('rate_unavailable', 503),
      ],
      ...['answer lost' as const, refusal('amount_too_small', 422)],
      // Another release or secret refuses the repeat of a request that was executed.
      ...['answer lost' as const, refusal('parameter_unknown', 400)],
      ...['answer lost' as const, refusal('idempotency_key_reused', 422)],
      // Without retries, an answer that leaves it open is no refusal either.
      ...[refusal('service_unavailable', 503), refusal('rate_unavailable', 503)],
    );
    proxy.faults('GET /v1/account', 'silence');
    const result = await run('unrepeated', await openCaller(proxy.url));
    expect(result).toMatchObject({
      failures: [
        ['payout_not_cancelable', 1],
        ['rate_limited', 1],
        ['rate_unavailable', 1],
        [307, 1, null, true],
        [500, 1, null, true],
        [null, 2, 'api_key_invalid', true],
        ['rate_unavailable', 2],
        ['amount_too_small', 2],
        [null, 2, 'parameter_unknown', true],
        [null, 2, 'idempotency_key_reused', true],
        [null, 1, 'service_unavailable', true],
        ['rate_unavailable', 1],
      ],
      ...(name === 'TypeScript' ? { aborted: 'TimeoutError' } : {}),
    });
    expect(proxy.seen('POST /v1/quotes')).toHaveLength(16);
    expect(proxy.seen('POST /v1/payouts')).toEqual([]);
    // The User-Agent tells the service's operators which client calls, in which package version.
    const [request] = proxy.seen('POST /v1/quotes');
    expect(request?.userAgent).toBe(
      `corridor-client-${name.toLowerCase()}/${await versionOf(name)}`,
    );
  });

  it('accepts only genuine webhooks', async ({ onTestFinished }) => {
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    const { apiKey } = await openCaller();
    const client = createClient(system.apiUrl, apiKey);
    const added = await client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['payout.settled'], signature: 'v1a' },
    });
    const secret = textOf(added, 'secret');
    const payout = await pay(client);
    const { headers, body } = await receiver.next((webhook) => webhook.body.includes(payout));

    const secrets = [`whsec_${Buffer.from('another').toString('base64')}`, secret];
    const seconds = Math.floor(Date.now() / 1_000);
    const signature = headers['webhook-signature'] ?? '';
    const signedWith = (changes: Record<string, string>) => ({ ...headers, ...changes });
    const [current = '', next = ''] = publicKeySet(webhookKeys).keys.map(({ whpk }) => whpk);
    const signatures = signature.split(' ');
    const only = (version: string) =>
      signedWith({
        'webhook-signature': signatures.filter((one) => one.startsWith(`${version},`)).join(' '),
      });
    const newKind = JSON.stringify({
      ...{ ...JSON.parse(body), type: 'mandate.revoked' },
      data: { object: 'mandate', id: 'mdt_1' },
    });
    const events = ['payout.sent', 'payout.settled'].map((type, index) => ({
      ...{ ...JSON.parse(body), id: `evt_${index}`, type },
    }));
    const batch = JSON.stringify({ ...JSON.parse(body), type: 'event.batch', data: events });

    const challenge = JSON.stringify(webhookExample('webhook_endpoint.challenge', '2026-06-01'));
    const test = JSON.stringify(webhookExample('webhook_endpoint.test', '2026-06-01'));
    const endpointId: string = JSON.parse(challenge).data.webhook_endpoint;
    const challenged = { headers: signatureOf(secret, challenge), body: challenge, secrets };
    const ofNone = JSON.stringify({ ...JSON.parse(challenge), data: { challenge: 'none' } });
    const probes = [
      { name: 'a challenge', ...challenged, endpoints: endpointId },
      { name: 'a challenge to one of several', ...challenged, endpoints: ['we_1', endpointId] },
      {
        name: 'a challenge to the endpoint of a stranger',
        ...challenged,
        endpoints: `${endpointId}1`,
      },
      {
        name: 'a challenge to none of several',
        ...challenged,
        endpoints: ['we_1', `${endpointId}1`],
      },
      {
        ...{ name: 'a challenge that names none', endpoints: endpointId, secrets },
        ...{ headers: signatureOf(secret, ofNone), body: ofNone },
      },
      { name: 'a challenge that is not ours', ...challenged, headers, endpoints: endpointId },
      { name: 'a test', headers: signatureOf(secret, test), body: test, secrets },
    ];
    const deliveries = [
      { name: 'a batch', headers: signatureOf(secret, batch), body: batch, secrets: secret },
      {
        name: 'about a new kind of object',
        headers: signatureOf(secret, newKind),
        body: newKind,
        secrets: secret,
      },
      { name: 'genuine', headers, body, secrets: secret },
      { name: 'with two secrets', headers, body, secrets },
      { name: 'verified by the published keys', headers, body, secrets: 'published' },
      {
        name: 'verified by either kind',
        headers: only('v1a'),
        body,
        secrets: [secret, next, current],
      },
      { name: 'of a rotation', headers, body, secrets: [next, current] },
      { name: 'signed with another key', headers, body, secrets: next },
      { name: 'signed with secrets alone', headers: only('v1'), body, secrets: 'published' },
      { name: 'signed with a key alone', headers: only('v1a'), body, secrets: secret },
      {
        name: 'changed after a key has signed it',
        headers,
        body: body.replace('settled', 'failed'),
        secrets: 'published',
      },
      {
        name: 'signed with what is no signature',
        headers: signedWith({ 'webhook-signature': 'v1a, v1a,AAAA v1a,é v1a' }),
        body,
        secrets: current,
      },
      {
        name: 'signed twice',
        headers: signedWith({ 'webhook-signature': `v1,AAAA v2,x ${signature}` }),
        body,
        secrets,
      },
      { name: 'signed with another secret', headers, body, secrets: secrets[0] },
      { name: 'without secrets', headers, body, secrets: [] },
      { name: 'with another body', headers, body: body.replace('settled', 'failed'), secrets },
      { name: 'with another id', headers: signedWith({ 'webhook-id': 'evt_1' }), body, secrets },
      {
        name: 'with another time',
        headers: signedWith({ 'webhook-timestamp': `${seconds + 1}` }),
        body,
        secrets,
      },
      { name: 'too old', headers: signatureOf(secret, body, seconds - 301), body, secrets },
      { name: 'old', headers: signatureOf(secret, body, seconds - 280), body, secrets },
      { name: 'too new', headers: signatureOf(secret, body, seconds + 330), body, secrets },
      {
        name: 'without a time',
        headers: signedWith({ 'webhook-timestamp': 'NaN' }),
        body,
        secrets,
      },
      {
        name: 'signed with bytes that are no text',
        headers: signedWith({ 'webhook-signature': 'v1,\udcff' }),
        body,
        secrets,
      },
      {
        name: 'without a signature',
        headers: signedWith({ 'webhook-signature': '' }),
        body,
        secrets,
      },
    ];
    const byKey = ['verified by the published keys', 'verified by either kind', 'of a rotation'];
    const genuine = ['genuine', 'with two secrets', 'signed twice', 'old', ...byKey];
    const all = [...probes, ...deliveries];
    const answer = 'Jd3rTzYx0cT1mC7mJbq4u4H0yq3K2w8vPpXn5sLr6fE';
    const verdicts = await run('webhooks', { apiUrl: system.apiUrl, apiKey }, all);
    expect(verdicts).toEqual([
      ['a challenge', 'answered', answer],
      ['a challenge to one of several', 'answered', answer],
      ...['to the endpoint of a stranger', 'to none of several', 'that names none'].map((what) => [
        ...[`a challenge ${what}`, 'webhook_endpoint.challenge', 'not answered'],
      ]),
      ['a challenge that is not ours', 'refused'],
      ['a test', 'webhook_endpoint.test', 'we_01ky8m2w4a'],
      ...deliveries.map((delivery) => {
        if (delivery.body === batch) {
          const other = name === 'Python' ? 'verify_webhook_events' : 'verifyWebhookEvents';
          const refusal = `The webhook is a batch of events: use ${other}.`;
          return [delivery.name, 'evt_0', 'evt_1', refusal];
        }
        if (delivery.body === newKind) return [delivery.name, 'mandate.revoked', 'mdt_1'];
        const isGenuine = genuine.includes(delivery.name);
        return isGenuine ? [delivery.name, 'payout.settled', payout] : [delivery.name, 'refused'];
      }),
    ]);
  });

  it('feeds every event in order, over lost connections', async ({ onTestFinished }) => {
    const proxy = await openProxy(onTestFinished);
    const caller = await openCaller(proxy.url);
    const client = createClient(system.apiUrl, caller.apiKey);
    const early = [await pay(client), await pay(client)];
    await Promise.all(early.map((payout) => untilStatus(client, payout, 'settled')));
    const faults = ['passed on', 'answer lost', 'answer cut', { status: 503 }] as const;
    proxy.faults('GET /v1/events', ...faults);
    const running = run('feed', caller, { count: 8 });
    // The remaining events are created after the first page has been read.
    await expect
      .poll(() => proxy.seen('GET /v1/events').length, { timeout: 20_000 })
      .toBeGreaterThan(1);
    const all = [...early, await pay(client), await pay(client)];
    const result = z
      .object({
        events: z.array(z.tuple([z.number(), z.string(), z.string()])),
        resumed: z.array(z.number()),
        listed: z.array(z.number()),
      })
      .parse(await running);
    const sequences = [1, 2, 3, 4, 5, 6, 7, 8];
    expect(result.events.map(([sequence]) => sequence)).toEqual(sequences);
    for (const payout of all) {
      const own = result.events.filter(([, , id]) => id === payout).map(([, type]) => type);
      expect(own).toEqual(['payout.sent', 'payout.settled']);
    }
    expect(result.resumed).toEqual(sequences.slice(3));
    expect(result.listed).toEqual(sequences.toReversed());
    expect(proxy.seen('GET /v1/events').length).toBeGreaterThan(3);
  });

  it('waits for the next event with one long request instead of one per second', async ({
    onTestFinished,
  }) => {
    const proxy = await openProxy(onTestFinished);
    const caller = await openCaller(proxy.url);
    const client = createClient(system.apiUrl, caller.apiKey);
    const running = run('feed', caller, { count: 4 });
    await expect
      .poll(() => proxy.seen('GET /v1/events').length, { timeout: 20_000 })
      .toBeGreaterThan(0);
    // The request began before there were any events, and after the delay it must still be open.
    await expect(Promise.race([running, delay(2_500, 'open')])).resolves.toBe('open');
    expect(proxy.seen('GET /v1/events')).toMatchObject([
      { prefer: expect.stringMatching(/^wait=\d\d$/) },
    ]);
    await pay(client);
    await pay(client);
    await running;
  });

  it('passes on events about new kinds of objects', async ({ onTestFinished }) => {
    const proxy = await openProxy(onTestFinished);
    const envelope = { object: 'event', created_at: '2026-11-21T12:00:00.000Z' };
    const types = ['payout.sent', 'batch.completed', 'webhook_endpoint.disabled'] as const;
    const events = types.map((type) => ({
      ...{ ...webhookExample(type, '2026-11-15'), ...envelope },
    }));
    const limit = { object: 'limit', currency: 'USD', left: '12.50', periods: [{ days: 30 }] };
    const added = { ...events[0], id: 'evt_2', type: 'limit.reached', data: limit };
    const data = [events[0], added, events[1], events[2]].map((event, index) => ({
      ...{ ...event, sequence: index + 1 },
    }));
    const page = answerOf({ object: 'list', data, has_more: false });
    proxy.faults('GET /v1/events', page, page);
    proxy.faults('GET /v1/events/evt_2', answerOf(data[1]));
    expect(await run('kinds', await openCaller(proxy.url))).toEqual({
      kinds: [
        [1, 'payout.sent', 'payout'],
        [2, 'limit.reached', 'limit'],
        [3, 'batch.completed', 'batch'],
        [4, 'webhook_endpoint.disabled', 'webhook_endpoint'],
      ],
      ...{ whole: limit, listed: 4, read: limit, disabled: 'disabled' },
    });
  });

  it('works as its README shows', async ({ onTestFinished }) => {
    const port = await freePort();
    const caller = await openCaller();
    const lines: string[] = [];
    const program = await startReadme(caller, { port, onLine: (line) => lines.push(line) });
    onTestFinished(() => program.stop());
    const output = lines.join('\n');
    expect(output).toMatch(/^settled 1066\.\d\d$/m);
    expect(output).toMatch(/^insufficient_funds /m);
    expect(output).toMatch(/^\d+ batch\.completed bat_/m);

    // The account's version when the endpoint was created, in which rates are numbers.
    const body = JSON.stringify(webhookExample('payout.returned', '2026-06-01'));
    const [endpoint] = await system.database<{ id: string }[]>`
      select id from webhook_endpoints where account_id = ${caller.accountId}`;
    const [secret = ''] = await webhookSecretsOf(system.database, keyring, endpoint?.id ?? '');
    const headers = signatureOf(secret, body);
    const deliver = async (sent: string) => {
      const answer = await fetch(`http://127.0.0.1:${port}`, {
        method: 'POST',
        headers,
        body: sent,
      });
      return answer.status;
    };
    expect(await deliver(body)).toBe(204);
    expect(await deliver(body.replace('returned', 'settled'))).toBe(400);
    expect(lines).toContainEqual(expect.stringMatching(/^payout\.returned po_/));
  });
});

/** The headers of a webhook signed with the secret (Standard Webhooks). */
function signatureOf(secret: string, body: string, timestamp = Math.floor(Date.now() / 1_000)) {
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const digest = createHmac('sha256', key).update(`evt_1.${timestamp}.${body}`).digest('base64');
  return {
    'webhook-id': 'evt_1',
    'webhook-timestamp': String(timestamp),
    'webhook-signature': `v1,${digest}`,
  };
}

/** The version in the manifest of a client's package. */
async function versionOf(name: 'TypeScript' | 'Python'): Promise<string | undefined> {
  const manifest = { TypeScript: 'typescript/package.json', Python: 'python/pyproject.toml' }[name];
  const text = await readFile(new URL(`../../clients/${manifest}`, import.meta.url), 'utf8');
  return /^\W*version\W+([\d.]+)/m.exec(text)?.[1];
}

/** Requests a payout and returns its ID. */
async function pay(client: ApiClient): Promise<string> {
  const stored = await client('POST /v1/beneficiaries', {
    form: {
      ...{ type: 'individual', name: 'Ada Lovelace', country: 'DE', currency: 'EUR' },
      iban: 'DE89370400440532013000',
    },
  });
  const form = { source_currency: 'USD', amount: '2000', beneficiary: textOf(stored, 'id') };
  return textOf(await client('POST /v1/payouts', { form }), 'id');
}
