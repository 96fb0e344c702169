import { execFile } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { giveProof } from '../../src/cli/operators.js';
import { connectDatabase, type Database, transaction } from '../../src/db/client.js';
import {
  beginSession,
  countOtherAdmins,
  giveOperatorIdentity,
  giveOperatorKey,
  listOperators,
  operatorOf,
  revokeOperator,
} from '../../src/db/operators.js';
import type { OperatorRole } from '../../src/domain/operator.js';
import { listen } from '../../src/metricsServer.js';
import { eventually } from '../assertions/eventually.js';
import { type Claims, clientId, startOpenidProvider } from '../fakes/openidProvider.js';
import { makeCertificates } from '../fixtures/certificates.js';
import { called, shown, signedBy } from '../fixtures/operators.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';

const program = (path: string) => fileURLToPath(new URL(`../../dist/src/${path}`, import.meta.url));
const sessionForm = z.object({
  ...{ operator: z.string(), role: z.string(), ends_at: z.iso.datetime(), key: z.string() },
});
const refusalForm = z.object({ message: z.string() });
const hourMs = 60 * 60 * 1000;

let test: TestDatabase;
let operators: Database;
let signIn: Database;
let provider: Awaited<ReturnType<typeof startOpenidProvider>>;
let service: Part;
const serviceLog: string[] = [];

beforeAll(async () => {
  test = await createTestDatabase();
  const connect = (url: string) =>
    connectDatabase({ url, poolSize: 2, applicationName: 'test-sign-in' });
  operators = connect(test.urls.operator);
  signIn = connect(test.urls.sign_in);
  provider = await startOpenidProvider();
  service = await startService();
});
afterAll(async () => {
  await service.stop();
  await provider.goAway();
  await Promise.all([operators, signIn].map((database) => database.end({ timeout: 5 })));
  await test.drop();
});

function startService(env: Readonly<Record<string, string>> = {}): Promise<Part> {
  return startProcess({
    ...{ name: 'sign-in', command: process.execPath, args: [program('signIn/main.js')] },
    env: {
      ...{ SIGN_IN_PORT: '0', DATABASE_URL: test.urls.sign_in },
      ...{ OIDC_ISSUER: provider.issuer, OIDC_CLIENT_ID: clientId, ...env },
    },
    ready: { line: (line) => /"ready":"(http[^"]+)"/.exec(line)?.[1] },
    ...{ readyTimeoutMs: 30_000, stopTimeoutMs: 10_000, onLog: (line) => serviceLog.push(line) },
  });
}

async function open(token: string | undefined, at = service.announced) {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const response = await fetch(`${at}/sessions`, { method: 'POST', headers });
  const body: unknown = await response.json();
  return { status: response.status, body };
}

/** Adds an operator who signs in with this identity. */
async function add(name: string, role: OperatorRole = 'operate', identity = `sub-of-${name}`) {
  await giveOperatorIdentity(operators, signedBy('grace'), 'add', { name, role, identity });
  return identity;
}

async function sessionOf(identity: string) {
  const { status, body } = await open(await provider.idToken({ sub: identity }));
  expect(status).toBe(201);
  return sessionForm.parse(body);
}

describe('an operator who signs in through the provider', () => {
  it('gets a key with their role for eight hours, recorded in the audit log', async () => {
    const session = await sessionOf(await add('ida', 'operate'));
    expect(session).toMatchObject({ operator: 'ida', role: 'operate' });
    const leftMs = Date.parse(session.ends_at) - Date.now();
    expect(Math.abs(leftMs - 8 * hourMs)).toBeLessThan(60_000);
    expect(await operatorOf(operators, session.key)).toBe('ida');
    const asAdmin = { operatorKey: session.key, reason: 'a friend' };
    await expect(
      giveOperatorKey(operators, asAdmin, 'add', { name: 'friend', role: 'view' }),
    ).rejects.toThrow('ida has the role operate; this takes admin.');
    const lines = await test.database`
      select operator, reason, command ->> 'kind' as kind from operator_actions
       where subject_id = 'operator_ida' order by created_at`;
    expect(lines).toMatchObject([
      { operator: 'grace', kind: 'operators add' },
      { operator: 'ida', kind: 'sign-in', reason: 'signed in' },
    ]);
  });

  it('cannot use the key after the session has ended', async () => {
    const { key } = await sessionOf(await add('sven'));
    await operators.begin(async (sql) => {
      expect(await operatorOf(sql, key)).toBe('sven');
      await test.database`
        update operator_sessions set began_at = began_at - interval '9 hours', ends_at = clock_timestamp()
         where operator = 'sven'`;
      // Even in a transaction that began before.
      await expect(sql.savepoint((inner) => operatorOf(inner, key))).rejects.toThrow(
        'its session has ended',
      );
    });
    await sessionOf('sub-of-sven');
    const kept = await test.database`select from operator_sessions where operator = 'sven'`;
    expect(kept.count).toBe(1);
  });

  it.each([
    ['revoked', (name: string) => revokeOperator(operators, signedBy('grace'), name)],
    [
      'given a key',
      (name: string) => giveOperatorKey(operators, signedBy('grace'), 'roll', { name, role: null }),
    ],
    [
      'given another identity',
      (name: string) =>
        giveOperatorIdentity(operators, signedBy('grace'), 'roll', {
          ...{ name, role: null, identity: `another-of-${name}` },
        }),
    ],
  ])('who is %s loses the session and cannot start another', async (what, change) => {
    const name = `ends-${what.replaceAll(' ', '-')}`;
    const { key } = await sessionOf(await add(name));
    await change(name);
    await expect(operatorOf(operators, key)).rejects.toThrow('its session has ended');
    const { status, body } = await open(await provider.idToken({ sub: `sub-of-${name}` }));
    expect([status, body]).toEqual([
      403,
      { message: `No operator has the identity sub-of-${name}.` },
    ]);
  });

  it('cannot issue themselves a key that would outlast the session', async () => {
    const { key } = await sessionOf(await add('hugo', 'admin'));
    const own = { operatorKey: key, reason: 'for the weekend' };
    const roll = { name: 'hugo', role: null };
    await expect(giveOperatorKey(operators, own, 'roll', roll)).rejects.toThrow(
      'hugo signs in: another admin replaces that.',
    );
    await expect(
      giveOperatorIdentity(operators, own, 'roll', { ...roll, identity: 'a-private-account' }),
    ).rejects.toThrow('hugo signs in: another admin replaces that.');
  });

  it('is matched by the exact identity, including its case', async () => {
    const identity = 'samlp|corp|Alma@Example.com';
    const flags = { role: 'view', identity };
    await shown(() => giveProof(called({ database: operators }, 'alma', flags), 'add'));
    expect((await sessionOf(identity)).operator).toBe('alma');
    const { status } = await open(await provider.idToken({ sub: identity.toLowerCase() }));
    expect(status).toBe(403);
  });

  it('does not count as an admin with a key of their own', async () => {
    const before = await transaction(test.database, (sql) => countOtherAdmins(sql, 'nobody'));
    await add('wilma', 'admin');
    expect(await transaction(test.database, (sql) => countOtherAdmins(sql, 'nobody'))).toBe(before);
    await giveOperatorKey(operators, signedBy('grace'), 'roll', { name: 'wilma', role: null });
    expect(await transaction(test.database, (sql) => countOtherAdmins(sql, 'nobody'))).toBe(
      before + 1,
    );
  });

  it('cannot share an identity, but may take over that of a revoked operator', async () => {
    const identity = await add('first');
    await expect(add('second', 'view', identity)).rejects.toThrow(
      'Another operator has the identity sub-of-first.',
    );
    await revokeOperator(operators, signedBy('grace'), 'first');
    await add('second', 'view', identity);
    expect((await sessionOf(identity)).operator).toBe('second');
    const all = await listOperators(operators);
    expect(all.filter((each) => each.identity === identity)).toMatchObject([
      { name: 'first', lastFour: null },
      { name: 'second', lastFour: null, revokedAt: null },
    ]);
  });
});

describe('a token is refused', () => {
  const nowS = () => Math.floor(Date.now() / 1000);
  const person = { sub: 'sub-of-nina' };
  const aNumber: object = { sub: 5 };
  beforeAll(() => add('nina'));
  const changed = (claims: Claims, typ?: string) => provider.idToken({ ...person, ...claims }, typ);
  const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const handMade = (header: object, sign: (text: string) => string) => {
    const claims = {
      iss: provider.issuer,
      aud: clientId,
      iat: nowS(),
      exp: nowS() + 300,
      ...person,
    };
    const text = `${encoded(header)}.${encoded(claims)}`;
    return `${text}.${sign(text)}`;
  };

  it.each<[string, string, () => Promise<string> | string]>([
    ['of another issuer', '"iss"', () => changed({ iss: 'https://accounts.example.com' })],
    ['for another client', '"aud"', () => changed({ aud: 'another-client' })],
    ['that has expired', '"exp"', () => changed({ exp: nowS() - 60 })],
    ['that is not valid yet', '"nbf"', () => changed({ nbf: nowS() + 600 })],
    ['issued long ago', '"iat"', () => changed({ iat: nowS() - 700 })],
    ['without a subject', '"sub"', () => changed({ sub: undefined })],
    ['with an empty subject', 'no sub', () => changed({ sub: '' })],
    ['with a subject that is not text', 'no sub', () => changed({ ...aNumber })],
    ['with a subject that the database cannot keep', 'no sub', () => changed({ sub: 'a\u0000b' })],
    ['without an expiry', '"exp"', () => changed({ exp: undefined })],
    ['issued to another client', 'another client', () => changed({ azp: 'another-client' })],
    ['for several clients', 'another client', () => changed({ aud: [clientId, 'another-client'] })],
    ['that is an access token', 'expected an ID token', () => changed({}, 'at+jwt')],
    [
      'that somebody else has signed',
      'signature verification failed',
      () => provider.idToken(person, 'JWT', { ...provider.newKey(), kid: provider.signing().kid }),
    ],
    [
      'that names a key which the provider does not have',
      'no applicable key',
      () => provider.idToken(person, 'JWT', provider.newKey()),
    ],
    ['that is not signed', '"alg"', () => handMade({ alg: 'none' }, () => '')],
    [
      'signed with the public key as a secret',
      '"alg"',
      () => {
        const { kid, publicKey } = provider.signing();
        const secret = publicKey.export({ type: 'spki', format: 'pem' });
        return handMade({ alg: 'HS256', kid }, (text) =>
          createHmac('sha256', secret).update(text).digest('base64url'),
        );
      },
    ],
    ['that is not a token', 'Invalid Compact JWS', () => 'a-password'],
  ])('%s', async (_what, message, make) => {
    const { status, body } = await open(await make());
    expect(status).toBe(401);
    expect(refusalForm.parse(body).message).toContain(message);
  });

  it('that is missing', async () => {
    const { status, body } = await open(undefined);
    expect([status, body]).toEqual([
      401,
      { message: 'Authorization: expected Bearer and an ID token.' },
    ]);
  });

  it('but not one for several clients that was issued to this one', async () => {
    const token = await changed({ aud: [clientId, 'another-client'], azp: clientId });
    expect((await open(token)).status).toBe(201);
  });

  it('of somebody who is not an operator', async () => {
    const { status, body } = await open(await provider.idToken({ sub: 'a-stranger' }));
    expect([status, body]).toEqual([403, { message: 'No operator has the identity a-stranger.' }]);
    await eventually('the refusal is logged', 20_000, () =>
      serviceLog.find(
        (line) => line.includes('a sign-in is refused') && line.includes('a-stranger'),
      ),
    );
  });
});

it('an email address is an identity, in any letter case, if the provider has verified it', async () => {
  const byAddress = await startService({ OIDC_IDENTITY_CLAIM: 'email' });
  await add('maria', 'approve', 'maria@example.com');
  await add('kim', 'approve', 'kim@example.com');
  const openAs = async (claims: Claims) =>
    open(await provider.idToken({ sub: 'sub-1', ...claims }), byAddress.announced);
  try {
    expect(await openAs({ email: 'Maria@Example.com', email_verified: true })).toMatchObject({
      ...{ status: 201, body: { operator: 'maria' } },
    });
    for (const claims of [
      {},
      { email: 'maria@example.com' },
      { email: '', email_verified: true },
      // Other letters, one of which is not a k but has a k as its lower-case form.
      { email: 'mar\u0131a@example.com', email_verified: true },
      { email: '\u212Aim@example.com', email_verified: true },
    ]) {
      expect((await openAs(claims)).status).toBe(401);
    }
  } finally {
    await byAddress.stop();
  }
});

it('the provider may change its keys, go away and come back', async () => {
  await add('rosa');
  provider.rotate();
  // The service fetches keys again only five seconds after its last fetch.
  await eventually('the new key is known', 10_000, async () => {
    const { status } = await open(await provider.idToken({ sub: 'sub-of-rosa' }));
    return status === 201 || undefined;
  });
  const second = await startService();
  try {
    await provider.goAway();
    expect(await open(await provider.idToken({ sub: 'sub-of-rosa' }), second.announced)).toEqual({
      ...{
        status: 503,
        body: { message: 'The OpenID provider does not answer. Try again later.' },
      },
    });
    await provider.comeBack();
    const { status } = await open(await provider.idToken({ sub: 'sub-of-rosa' }), second.announced);
    expect(status).toBe(201);
  } finally {
    await second.stop();
  }
});

it.each([
  ['an error', [500, 'out of order']],
  ['a page', [200, '<html>']],
  ['no keys', [200, '{"keys":5}']],
] as const)('a provider answering with %s is at fault, not the token', async (_what, answer) => {
  const service = await startService();
  provider.answerForKeys(answer);
  try {
    const token = await provider.idToken({ sub: 'sub-of-nina' });
    expect(await open(token, service.announced)).toEqual({
      ...{
        status: 503,
        body: { message: 'The OpenID provider does not answer. Try again later.' },
      },
    });
  } finally {
    provider.answerForKeys(undefined);
    await service.stop();
  }
});

it('an https provider must serve its keys by https too', async () => {
  const { ca, server: own } = await makeCertificates();
  const [cert, key] = await Promise.all([readFile(own.cert), readFile(own.key)]);
  const keys = await (await fetch(`${provider.issuer}/jwks`)).text();
  let whereKeysAre = `${provider.issuer}/jwks`;
  let issuer = '';
  const secure = createSecureServer({ cert, key }, ({ url }, response) => {
    const itself = JSON.stringify({ issuer, jwks_uri: whereKeysAre });
    response.setHeader('content-type', 'application/json');
    response.end(url === '/jwks' ? keys : itself);
  });
  issuer = (await listen(secure, '127.0.0.1', 0)).replace('http:', 'https:');
  const service = await startService({ OIDC_ISSUER: issuer, NODE_EXTRA_CA_CERTS: ca.cert });
  await add('tessa');
  const statusOf = async () => {
    const token = await provider.idToken({ sub: 'sub-of-tessa', iss: issuer });
    return (await open(token, service.announced)).status;
  };
  try {
    expect(await statusOf()).toBe(503);
    whereKeysAre = `${issuer}/jwks`;
    expect(await statusOf()).toBe(201);
  } finally {
    await service.stop();
    secure.closeAllConnections();
    secure.close();
  }
});

it('concurrent first sign-ins fetch the provider’s configuration once', async () => {
  const service = await startService();
  try {
    provider.asked.length = 0;
    await Promise.all(Array.from({ length: 20 }, () => open('a-password', service.announced)));
    const fetches = provider.asked.filter((path) => path.endsWith('/openid-configuration'));
    expect(fetches.length).toBe(1);
  } finally {
    await service.stop();
  }
});

it('a database that refuses the service is not reported as an unavailable provider', async () => {
  const service = await startService({ DATABASE_URL: test.urls.api });
  try {
    expect(await open(await provider.idToken({ sub: 'sub-of-nina' }), service.announced)).toEqual({
      ...{
        status: 503,
        body: { message: 'The database refuses the service. Try again later.' },
      },
    });
  } finally {
    await service.stop();
  }
});

it('the database login of the service can only start sessions, and reads nothing', async () => {
  for (const read of ['operators', 'operator_sessions', 'payouts', 'operator_actions']) {
    await expect(signIn`select from ${signIn(read)}`).rejects.toMatchObject({ code: '42501' });
    await expect(test.api`select from operator_sessions`).rejects.toMatchObject({ code: '42501' });
  }
  await expect(operatorOf(signIn, 'cop_x')).rejects.toMatchObject({ code: '42501' });
  for (const database of [operators, test.api, test.worker]) {
    await expect(beginSession(database, 'sub-of-nina', 8)).rejects.toMatchObject({ code: '42501' });
  }
  await expect(beginSession(signIn, 'sub-of-nina', 13)).rejects.toMatchObject({ code: '23514' });
  await expect(beginSession(signIn, 'sub-of-nina', 0)).rejects.toMatchObject({ code: '23514' });
});

describe('corridor sign-in', () => {
  /** Starts the command, answers as the user, and returns how it ended. */
  async function run(answer: Claims | null, before?: () => Promise<void>) {
    const output: string[] = [];
    const part = await startProcess({
      ...{ name: 'cli', command: process.execPath, args: [program('cli/main.js'), 'sign-in'] },
      env: { CORRIDOR_SIGN_IN_URL: service.announced },
      ready: { line: (line) => /^Code +(\S+),/.exec(line)?.[1] },
      ...{ readyTimeoutMs: 30_000, stopTimeoutMs: 10_000, onLog: (line) => output.push(line) },
    });
    expect(part.announced).toBe('WDJB-MJHT');
    await before?.();
    provider.confirm(answer);
    await part.exited;
    return output;
  }

  it('shows where to confirm, and the key of the session', async () => {
    await add('klara');
    const output = await run({ sub: 'sub-of-klara' });
    expect(output.join('\n')).toContain(`Open    ${provider.issuer}/activate`);
    expect(output.join('\n')).toContain('Signed in as klara (operate) until ');
    const [key = ''] = output.filter((line) => line.startsWith('cop_'));
    expect(await operatorOf(operators, key)).toBe('klara');
  });

  it('goes on polling when connections to the provider fail', async () => {
    await add('ludwig');
    const polls = () => provider.asked.filter((path) => path === '/token').length;
    const output = await run({ sub: 'sub-of-ludwig' }, async () => {
      provider.cutPolls(2);
      const earlier = polls();
      await eventually(
        'polls after those that failed',
        60_000,
        () => polls() > earlier + 2 || undefined,
      );
    });
    expect(output.join('\n')).toContain('Signed in as ludwig (operate) until ');
  });

  it('follows no redirect: its address is the configured one', async () => {
    const page = createServer((_, response) =>
      response.writeHead(307, { location: `${service.announced}/provider` }).end(),
    );
    const at = await listen(page, '127.0.0.1', 0);
    const env = { PATH: process.env['PATH'], CORRIDOR_SIGN_IN_URL: at };
    try {
      const cli = promisify(execFile)(process.execPath, [program('cli/main.js'), 'sign-in'], {
        env,
      });
      await expect(cli).rejects.toMatchObject({
        ...{ code: 3, stderr: `CORRIDOR_SIGN_IN_URL: ${at}/provider does not answer.\n` },
      });
    } finally {
      page.close();
    }
  });

  it('reports what is wrong with a misconfigured service or provider, and no more', async () => {
    const runAt = async (url: string) => {
      const env = { PATH: process.env['PATH'], CORRIDOR_SIGN_IN_URL: url };
      const cli = promisify(execFile)(process.execPath, [program('cli/main.js'), 'sign-in'], {
        env,
      });
      return cli.then(
        () => undefined,
        (error: unknown) => error,
      );
    };
    const notAService = (url: string) => `CORRIDOR_SIGN_IN_URL: ${url} is not a sign-in service.\n`;
    // Whoever reads or changes the traffic would be signed in.
    expect(await runAt('http://signin.internal:8082')).toMatchObject({
      ...{ code: 3, stderr: expect.stringContaining('expected an https URL') },
    });
    // This server answers with other JSON, and knows nothing of a device flow.
    const { issuer } = provider;
    expect(await runAt(issuer)).toMatchObject({
      code: 3,
      stderr: notAService(`${issuer}/provider`),
    });
    const page = createServer((request, response) => {
      const configuration = JSON.stringify({ issuer: `${issuer}/realm`, client_id: clientId });
      response.end(request.url === '/provider' ? configuration : '<html>');
    });
    const at = await listen(page, '127.0.0.1', 0);
    try {
      const url = `${at}/corridor`;
      expect(await runAt(url)).toMatchObject({ code: 3, stderr: notAService(`${url}/provider`) });
      expect(await runAt(`${at}/`)).toMatchObject({
        ...{ code: 3, stderr: expect.stringMatching(/^http:\S+\/realm cannot sign you in: .*\n$/) },
      });
    } finally {
      page.close();
    }
  });

  it('says why it is refused', async () => {
    expect((await run(null)).join('\n')).toContain('refuses: access_denied');
    expect((await run({ sub: 'a-guest' })).join('\n')).toContain(
      'No operator has the identity a-guest.',
    );
  });
});
