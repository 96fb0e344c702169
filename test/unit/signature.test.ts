import { verifyAsync } from '@noble/ed25519';
import fc from 'fast-check';
import { Webhook } from 'standardwebhooks';
import { describe, expect, it } from 'vitest';
import { verifyWebhook } from '../../sandbox/demo/verifyWebhook.js';
import { readWorkerConfig } from '../../src/config.js';
import {
  createSigner,
  createWebhookSecret,
  publicKeySet,
  readSigningKey,
  signWebhook,
} from '../../src/webhooks/signature.js';

// The test vector of the Standard Webhooks specification.
const vector = {
  id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  timestampSeconds: 1_614_265_330,
  body: '{"test": 2432232314}',
  secrets: ['MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
};
const signature = 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=';

function received(message: typeof vector, header = signWebhook(message)) {
  return {
    headers: {
      'webhook-id': message.id,
      'webhook-timestamp': String(message.timestampSeconds),
      'webhook-signature': header,
    },
    body: message.body,
    secrets: message.secrets,
    nowSeconds: message.timestampSeconds,
  };
}

describe('signWebhook', () => {
  it('signs the vector of the specification, with and without the prefix of the secret', () => {
    expect(signWebhook(vector)).toBe(signature);
    expect(signWebhook({ ...vector, secrets: [`whsec_${vector.secrets[0]}`] })).toBe(signature);
  });

  it('agrees with the reference verifier for any body, under the old and the new secret', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const secrets = [createWebhookSecret(), createWebhookSecret()];
        const body = JSON.stringify({ text });
        const timestampSeconds = Math.floor(Date.now() / 1_000);
        const { headers } = received({ id: 'evt_1', timestampSeconds, body, secrets });
        for (const secret of secrets) {
          expect(new Webhook(secret).verify(body, headers)).toEqual({ text });
        }
      }),
    );
  });

  it('makes secrets of 32 random bytes', () => {
    const [one, other] = [createWebhookSecret(), createWebhookSecret()];
    expect(one).not.toBe(other);
    expect(one).toMatch(/^whsec_/);
    expect(Buffer.from(one.slice('whsec_'.length), 'base64')).toHaveLength(32);
  });

  it.each(['', 'whsec_', 'whsec_c2hvcnQ='])('never signs with the broken secret %j', (secret) => {
    expect(() => signWebhook({ ...vector, secrets: [secret] })).toThrow('24 to 64 bytes');
  });
});

/** RFC 8032, section 7.1, test 1; its thumbprint is in RFC 8037, appendix A.3. */
const rfcKey = readSigningKey(
  `whsk_${Buffer.from('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60', 'hex').toString('base64')}`,
);
const rfcPublic = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a';

describe('createSigner', () => {
  it('adds a signature that an independent library verifies, and leaves the v1 signatures unchanged', async () => {
    const [v1, v1a = '', ...others] = (
      await createSigner(rfcKey)({ ...vector, signature: 'v1a' })
    ).split(' ');
    expect(v1).toBe(signature);
    expect(others).toEqual([]);
    const bytes = Buffer.from(v1a.replace(/^v1a,/, ''), 'base64');
    const isGenuine = (text: string) =>
      verifyAsync(bytes, Buffer.from(text), Buffer.from(rfcPublic, 'hex'));
    expect(await isGenuine(`${vector.id}.${vector.timestampSeconds}.${vector.body}`)).toBe(true);
    expect(await isGenuine(`${vector.id}.${vector.timestampSeconds}.${vector.body} `)).toBe(false);
  });

  it('signs only with the secrets when no more is requested or there is no key', async () => {
    expect(await createSigner(rfcKey)({ ...vector, signature: 'v1' })).toBe(signature);
    expect(await createSigner()({ ...vector, signature: 'v1a' })).toBe(signature);
  });
});

describe('publicKeySet', () => {
  it('has the key and the thumbprint of RFC 8037, and the format of Standard Webhooks', () => {
    const key = Buffer.from(rfcPublic, 'hex');
    expect(publicKeySet([rfcKey])).toEqual({
      keys: [
        {
          ...{ kty: 'OKP', crv: 'Ed25519', use: 'sig', alg: 'EdDSA' },
          x: key.toString('base64url'),
          kid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
          whpk: `whpk_${key.toString('base64')}`,
        },
      ],
    });
  });
});

describe('WEBHOOK_SIGNING_KEYS', () => {
  const read = (keys: string) =>
    readWorkerConfig({
      DATABASE_URL: 'postgres://localhost/corridor',
      TEMPORAL_ADDRESS: 'localhost:7233',
      MASTER_KEY: 'a'.repeat(64),
      SANDBOX_BANK_URL: 'http://localhost:8090',
      SANDBOX_BANK_TOKEN: 'a-token-of-the-sandbox-bank',
      RATE_SOURCE: 'reference',
      WEBHOOK_SIGNING_KEYS: keys,
    }).WEBHOOK_SIGNING_KEYS;
  const [one, two, three, four] = ['A', 'B', 'C', 'D'].map(
    (letter) => `whsk_${Buffer.alloc(32, letter).toString('base64')}`,
  );

  it('may have up to three keys, the first of which signs', () => {
    expect(read('')).toEqual([]);
    expect(read(`${one}`)).toEqual([one]);
    expect(read(`${one}\n${two} ${three}`)).toEqual([one, two, three]);
  });

  it.each([
    ['four keys', [one, two, three, four].join(' ')],
    ['two keys without a space', `${one}${two}`],
    ['a key of 24 bytes', `whsk_${Buffer.alloc(24, 1).toString('base64')}`],
    ['a public key', `${one}`.replace('whsk_', 'whpk_')],
    ['a secret of an endpoint', createWebhookSecret()],
  ])('is not %s', (_, keys) => {
    expect(() => read(keys)).toThrow('WEBHOOK_SIGNING_KEYS: expected one to three ed25519 keys');
  });
});

describe('verifyWebhook', () => {
  it('accepts signatures of signWebhook and of the reference signer', () => {
    const secrets = [createWebhookSecret()];
    expect(verifyWebhook(received({ ...vector, secrets }))).toBe(true);
    const reference = new Webhook(secrets[0] ?? '');
    const header = reference.sign(
      vector.id,
      new Date(vector.timestampSeconds * 1_000),
      vector.body,
    );
    expect(verifyWebhook(received({ ...vector, secrets }, header))).toBe(true);
  });

  it('accepts the old secret and the new one while both are valid', () => {
    const [old, fresh, foreign] = [
      createWebhookSecret(),
      createWebhookSecret(),
      createWebhookSecret(),
    ];
    const overlap = received({ ...vector, secrets: [fresh, old] });
    expect(verifyWebhook({ ...overlap, secrets: [old] })).toBe(true);
    expect(verifyWebhook({ ...overlap, secrets: [fresh] })).toBe(true);
    expect(verifyWebhook({ ...overlap, secrets: [foreign] })).toBe(false);
    expect(
      verifyWebhook({ ...received({ ...vector, secrets: [old] }), secrets: [foreign, old] }),
    ).toBe(true);
  });

  it('refuses a changed body, id, time or signature, and other versions', () => {
    const good = received(vector);
    const headers = (changed: Partial<typeof good.headers>) => ({
      ...good,
      headers: { ...good.headers, ...changed },
    });
    expect(verifyWebhook(good)).toBe(true);
    expect(verifyWebhook({ ...good, body: `${good.body} ` })).toBe(false);
    expect(verifyWebhook(headers({ 'webhook-id': 'msg_other' }))).toBe(false);
    expect(verifyWebhook(headers({ 'webhook-timestamp': '1614265331' }))).toBe(false);
    for (const header of [
      '',
      'v1,',
      'v1',
      signature.replace('v1,g', 'v1,h'),
      signature.replace('v1,', 'v2,'),
    ]) {
      expect(verifyWebhook(headers({ 'webhook-signature': header })), header).toBe(false);
    }
  });

  it('refuses a timestamp more than five minutes old or ahead', () => {
    const at = (offset: number) =>
      verifyWebhook({ ...received(vector), nowSeconds: vector.timestampSeconds + offset });
    expect([-301, -300, 300, 301].map(at)).toEqual([false, true, true, false]);
  });

  it.each(['', 'now', '1e9', '-1', '1614265330.5'])('refuses the timestamp %j', (timestamp) => {
    const good = received(vector);
    const header = `v1,${signature}`;
    expect(
      verifyWebhook({
        ...good,
        headers: { ...good.headers, 'webhook-timestamp': timestamp, 'webhook-signature': header },
      }),
    ).toBe(false);
  });
});
