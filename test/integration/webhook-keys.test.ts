import { verifyAsync } from '@noble/ed25519';
import { Webhook } from 'standardwebhooks';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { createClient, textOf } from '../fixtures/client.js';
import { openPayer } from '../fixtures/payer.js';
import { createTestAccount } from '../servers/database.js';
import { startSecondApi } from '../servers/secondApi.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let receiver: Receiver;

beforeAll(async () => {
  [system, receiver] = await Promise.all([startSystem(), startReceiver()]);
});
afterAll(async () => {
  await system.stop();
  await receiver.close();
});

const path = '/.well-known/corridor-webhook-keys';
const keySet = z.object({ keys: z.array(z.object({ x: z.string(), whpk: z.string() })) });

/** Reads the keys without an API key, as anyone can. */
async function publishedKeys() {
  const answer = await fetch(system.apiUrl + path);
  return { answer, keys: keySet.parse(await answer.json()).keys };
}

describe('a webhook', () => {
  it('can be verified by the published key alone, and by its secret as well', async () => {
    const payer = await openPayer(system);
    const added = await payer.client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['payout.settled'], signature: 'v1a' },
    });
    await payer.ask('an ordinary payout');
    const { headers, body } = await receiver.next((webhook) => webhook.body.includes('settled'));

    const { keys } = await publishedKeys();
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
    const [v1 = '', v1a = '', ...others] = (headers['webhook-signature'] ?? '').split(' ');
    expect([v1.slice(0, 3), v1a.slice(0, 4), others]).toEqual(['v1,', 'v1a,', []]);
    const signature = Buffer.from(v1a.slice('v1a,'.length), 'base64');
    const verdicts = await Promise.all(
      keys.map(({ x }) => verifyAsync(signature, Buffer.from(signed), Buffer.from(x, 'base64url'))),
    );
    // The first key signs; the second is published for a later rotation.
    expect(verdicts).toEqual([true, false]);
    const [key] = keys;
    const other = Buffer.from(`${signed} `);
    expect(await verifyAsync(signature, other, Buffer.from(key?.x ?? '', 'base64url'))).toBe(false);
    // A library that only knows v1 ignores the other signature.
    const verified = new Webhook(textOf(added, 'secret')).verify(body, headers);
    expect(verified).toMatchObject({ type: 'payout.settled' });
  });
});

describe('an endpoint', () => {
  it('that did not choose v1a gets webhooks signed by its secret only', async () => {
    const payer = await openPayer(system);
    const added = await payer.client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['payout.sent'] },
    });
    expect(added.body).toMatchObject({ signature: 'v1' });
    await payer.ask('an ordinary payout');
    const { headers } = await receiver.next((webhook) => webhook.body.includes('payout.sent'));
    expect(headers['webhook-signature']).toMatch(/^v1,[^ ]+$/);
  });

  it('has the signature v1 or v1a, and shows which', async () => {
    const { client } = await openPayer(system);
    const add = (signature: string) =>
      client('POST /v1/webhook_endpoints', {
        form: { url: receiver.url, 'events[]': '*', signature },
      });
    expect((await add('v1a')).body).toMatchObject({ signature: 'v1a' });
    expect(await add('v2')).toMatchObject({
      status: 400,
      body: { code: 'parameter_invalid', param: 'signature', received: 'v2' },
    });
    const { body } = await client('GET /v1/webhook_endpoints');
    expect(body['data']).toMatchObject([{ signature: 'v1a' }]);
  });

  it('cannot have v1a from a service without a key, even later', async () => {
    const second = await startSecondApi(system, undefined, []);
    onTestFinished(() => second.close());
    const { apiKey } = await createTestAccount(system.database);
    const client = createClient(second.url, apiKey);
    const form = { url: receiver.url, 'events[]': '*' };
    const added = await client('POST /v1/webhook_endpoints', { form });
    const refused = {
      status: 400,
      body: {
        ...{ code: 'parameter_invalid', param: 'signature', received: 'v1a' },
        expected: 'v1, as this service has no key for v1a',
      },
    };
    const update = `POST /v1/webhook_endpoints/${textOf(added, 'id')}`;
    expect(await client(update, { form: { signature: 'v1a' } })).toMatchObject(refused);
    expect((await client(update, { form: { signature: 'v1' } })).status).toBe(200);
    const another = { form: { ...form, signature: 'v1a' } };
    expect(await client('POST /v1/webhook_endpoints', another)).toMatchObject(refused);
  });
});

describe(path, () => {
  it('is a JWK Set that may be cached for five minutes, and is not sent again unchanged', async () => {
    const { answer, keys } = await publishedKeys();
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toBe('application/json');
    expect(answer.headers.get('cache-control')).toBe('public, max-age=300');
    for (const { x, whpk } of keys) {
      expect(Buffer.from(whpk.slice('whpk_'.length), 'base64').toString('base64url')).toBe(x);
    }
    const etag = answer.headers.get('etag') ?? '';
    const again = await request(system.apiUrl + path, { headers: { 'if-none-match': etag } });
    expect(again.statusCode).toBe(304);
  });

  it('has public keys only', async () => {
    const text = await (await fetch(system.apiUrl + path)).text();
    expect(text).not.toMatch(/"d":|whsk_/);
    for (const key of [1, 2].map((byte) => Buffer.alloc(32, byte))) {
      expect(text).not.toContain(key.toString('base64').slice(0, 40));
      expect(text).not.toContain(key.toString('base64url'));
    }
  });
});
