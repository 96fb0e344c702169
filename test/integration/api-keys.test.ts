import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { routes } from '../../src/api/app.js';
import { createKey, listKeys, revokeKey, rollKey } from '../../src/cli/keys.js';
import { createApiKey, hashOfKey, insertApiKey, type NewApiKey } from '../../src/db/apiKeys.js';
import { exactlyOne } from '../../src/db/client.js';
import { scopes } from '../../src/domain/scope.js';
import { eventually } from '../assertions/eventually.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { called, environmentOf, signature } from '../fixtures/operators.js';
import { openWire, type Wire } from '../fixtures/wire.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem({ startsWorker: false });
});
afterAll(() => system.stop());

/** Creates a separate account with a key. */
async function openKey(options: Pick<NewApiKey, 'scopes' | 'expiresAt'> = {}) {
  const { account } = await createTestAccount(system.database);
  const apiKey = createApiKey('test');
  const stored = { accountId: account.id, keyHash: hashOfKey(apiKey), lastFour: apiKey.slice(-4) };
  const { id } = await insertApiKey(system.database, { ...stored, ...options, name: 'tested' });
  return { id, apiKey, accountId: account.id, client: createClient(system.apiUrl, apiKey) };
}

const ask = (apiKey: string) => createClient(system.apiUrl, apiKey)('GET /v1/account');

/** Returns the output of a command. */
async function printed(command: () => Promise<void>): Promise<string> {
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  try {
    await command();
    return log.mock.calls.flat().join('\n');
  } finally {
    log.mockRestore();
  }
}
const requestBy = (apiKey: string) =>
  `GET /v1/account HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`;
/** All of 127/8 is this machine, so each test can have a separate quota. */
const shownKey = (text: string) => exactlyOne(/cor_test_\w{36}/.exec(text)?.[0]);
const shownId = (text: string) => exactlyOne(/key_\w+/.exec(text)?.[0]);

describe('a key that may only send payouts', () => {
  const tooMuch = { source_currency: 'USD', amount: '99999999' };

  it('does not learn the available balance from a batch preview', async () => {
    const { client: owner, accountId } = await openKey();
    const beneficiary = textOf(
      await owner('POST /v1/beneficiaries', {
        form: {
          ...{ type: 'individual', name: 'Ada', country: 'DE', currency: 'EUR' },
          iban: 'DE89370400440532013000',
        },
      }),
      'id',
    );
    const sender = createApiKey('test');
    const stored = { accountId, keyHash: hashOfKey(sender), lastFour: sender.slice(-4) };
    await insertApiKey(system.database, { ...stored, name: 's', scopes: ['payouts:create'] });
    const json = { payouts: [{ ...tooMuch, beneficiary }], validate_only: true };
    const preview = (by: ApiClient) => by('POST /v1/batches', { json });
    const shown = JSON.stringify((await preview(owner)).body);
    expect(shown).toContain('at most 10000.00 USD, the available balance');
    const hidden = await preview(createClient(system.apiUrl, sender));
    // An accepted preview would reveal the balance too, as the sum of the powers of two that are accepted.
    expect(hidden).toMatchObject({
      status: 403,
      body: {
        code: 'scope_missing',
        expected: 'an API key with the scope read',
        received: 'a key with the scope payouts:create',
      },
    });
    expect(hidden.headers.get('www-authenticate')).toBe(
      'Bearer error="insufficient_scope", scope="read"',
    );
    const batch = { payouts: [{ ...tooMuch, beneficiary }] };
    const sent = await createClient(system.apiUrl, sender)('POST /v1/batches', { json: batch });
    expect(sent.status).toBe(202);
  });
});

describe('a key with one scope', () => {
  const sendsPayouts = ['POST /v1/quotes', 'POST /v1/payouts', 'POST /v1/batches'];
  const isReached = {
    read: (route: string) => route.startsWith('GET '),
    write: (route: string) => !route.startsWith('GET '),
    'payouts:create': (route: string) => sendsPayouts.includes(route),
    webhooks: (route: string) => /^\w+ \/v1\/(webhook_endpoints|events)\b/.test(route),
  };

  it.each(scopes)(
    '%s reaches its routes, and every other route names the missing scope',
    async (scope) => {
      const { client } = await openKey({ scopes: [scope] });
      const reached: string[] = [];
      for (const { method, path } of routes) {
        const route = `${method.toUpperCase()} ${path}`;
        const answer = await client(route.replace(':id', 'none'));
        if (answer.status !== 403) {
          reached.push(route);
          continue;
        }
        const broad = method === 'get' ? 'read' : 'write';
        expect(answer.body).toMatchObject({
          code: 'scope_missing',
          param: 'Authorization',
          expected: expect.stringContaining(broad),
          received: `a key with the scope ${scope}`,
        });
        expect(answer.headers.get('www-authenticate')).toMatch(
          /^Bearer error="insufficient_scope", scope="[a-z:]+"$/,
        );
      }
      const all = routes.map(({ method, path }) => `${method.toUpperCase()} ${path}`);
      expect(reached).toEqual(all.filter(isReached[scope]));
    },
  );

  it('is refused before its body is read, and leaves nothing behind', async () => {
    const { apiKey } = await openKey({ scopes: ['read'] });
    const sending = httpRequest(`${system.apiUrl}/v1/payouts`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${apiKey}`,
        'content-type': 'application/x-www-form-urlencoded',
        'content-length': '1000',
      },
    });
    onTestFinished(() => void sending.destroy());
    sending.flushHeaders();
    const [response] = await once(sending, 'response');
    expect(response).toMatchObject({ statusCode: 403 });
  });
});

it('a key without stated scopes reaches every route', async () => {
  const { client } = await openKey();
  for (const { method, path } of routes) {
    const answer = await client(`${method.toUpperCase()} ${path.replace(':id', 'none')}`);
    expect(answer.status).not.toBe(403);
  }
});

describe('a key that expires', () => {
  const moveExpiry = (id: string, seconds: number) =>
    system.database`
      update api_keys set expires_at = now() + make_interval(secs => ${seconds}) where id = ${id}`;
  const isRefused = ({ status, body }: ApiAnswer) => ({ status, code: body['code'] });
  const invalid = { status: 401, code: 'api_key_invalid' };

  it('works until then; afterwards the answer says that it has expired', async () => {
    const { id, apiKey } = await openKey();
    await moveExpiry(id, 60);
    expect((await ask(apiKey)).status).toBe(200);
    await moveExpiry(id, 0);
    const answer = await ask(apiKey);
    expect(isRefused(answer)).toEqual(invalid);
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    expect(answer.body['detail']).toMatch(/ The key expired at \d{4}-.*Z\.$/);
    const unknown = await ask(createApiKey('test'));
    expect(isRefused(unknown)).toEqual(invalid);
    expect(unknown.body['detail']).not.toContain('expired');
  });

  it('and is revoked is refused like an unknown key', async () => {
    const { id, apiKey } = await openKey();
    await moveExpiry(id, 0);
    await printed(() => revokeKey(called(system, id)));
    const [revoked, unknown] = [await ask(apiKey), await ask(createApiKey('test'))];
    const { request_id: _one, ...received } = revoked.body;
    const { request_id: _other, ...expected } = unknown.body;
    expect(received).toEqual(expected);
  });
});

describe('requests with a wrong key from one address', () => {
  const wireFrom = (localAddress: string) => openWire(system.apiUrl, localAddress);
  const askAll = async (wire: Wire, keys: readonly string[]) => {
    wire.write(keys.map(requestBy).join(''));
    const statuses: number[] = [];
    while (statuses.length < keys.length) statuses.push((await wire.answer()).status);
    return statuses;
  };

  it('are limited before the key is looked up, even if they all come at once', async () => {
    const wire = await wireFrom('127.0.3.1');
    const statuses = await askAll(
      wire,
      Array.from({ length: 1_000 }, () => createApiKey('test')),
    );
    expect(new Set(statuses)).toEqual(new Set([401, 429]));
    // A burst of 100, and 20 for each second that this takes.
    expect(statuses.filter((status) => status === 401).length).toBeLessThan(500);
    wire.destroy();
  });

  it('do not include those with a valid key, even many new ones at once', async () => {
    const wire = await wireFrom('127.0.3.2');
    const { apiKey } = await openKey();
    const statuses = await askAll(
      wire,
      Array.from({ length: 300 }, () => apiKey),
    );
    expect(new Set(statuses)).toEqual(new Set([200]));
    for (let opened = 0; opened < 150; opened += 1) {
      expect(await askAll(wire, [(await openKey()).apiKey])).toEqual([200]);
    }
    wire.destroy();
  });

  it.each([
    [
      'has expired',
      '127.0.3.3',
      (id: string) => system.database`
      update api_keys set expires_at = now() where id = ${id}`,
    ],
    [
      'is revoked',
      '127.0.3.4',
      (id: string) => system.database`
      update api_keys set revoked_at = now() where id = ${id}`,
    ],
  ])('include those with a key that %s after it was accepted', async (_, address, end) => {
    const wire = await wireFrom(address);
    const { id, apiKey } = await openKey();
    expect(await askAll(wire, [apiKey])).toEqual([200]);
    await end(id);
    const statuses = new Set<number>();
    for (let sent = 0; sent < 2_000 && !statuses.has(429); sent += 1) {
      for (const status of await askAll(wire, [apiKey])) statuses.add(status);
    }
    expect(statuses).toEqual(new Set([401, 429]));
    wire.destroy();
  });
});

describe('a key that works only from some addresses', () => {
  const send = async (from: string, apiKey: string) => {
    const wire = await openWire(system.apiUrl, from);
    wire.write(requestBy(apiKey));
    const answer = await wire.answer();
    wire.destroy();
    return answer;
  };
  const openLimited = async (allow: string, options: Record<string, string> = {}) => {
    const { account } = await createTestAccount(system.database);
    const flags = { account: account.id, allow, ...options };
    const text = await printed(() => createKey(called(system, '', flags)));
    return { id: shownId(text), apiKey: shownKey(text), accountId: account.id };
  };

  it.each([
    ['127.0.4.1', '127.0.4.1', 200],
    ['127.0.4.2', '127.0.4.1', 403],
    ['127.0.4.77', '10.0.0.0/8,127.0.4.64/27', 200],
    ['127.0.4.96', '10.0.0.0/8,127.0.4.64/27', 403],
    ['127.0.4.1', '2001:db8::/32', 403],
    ['127.0.4.1', '0.0.0.0/0', 200],
  ])('from %s with --allow %s is answered %i', async (from, allow, status) => {
    const { id, apiKey } = await openLimited(allow);
    const answer = await send(from, apiKey);
    expect(answer.status).toBe(status);
    const { code, received, detail } = JSON.parse(answer.body);
    const [row] = await system.database<{ isUsed: boolean }[]>`
      select last_used_at is not null as is_used from api_keys where id = ${id}`;
    expect(row).toEqual({ isUsed: status === 200 });
    if (status === 200) return;
    expect({ code, received }).toEqual({ code: 'address_not_allowed', received: from });
    expect(detail).toBe(`The API key may not be used from ${from}.`);
    // The answer reveals neither the allowed addresses nor the owner of the key.
    const text = JSON.stringify([answer.body, [...answer.headers]]).replaceAll(from, '');
    expect(text).not.toMatch(/127\.0|acc_|RateLimit|10\.0/i);
  });

  it('is rolled with its addresses, and its list shows them', async () => {
    const { id, accountId } = await openLimited('127.0.4.1,2001:db8::/32', { name: 'limited' });
    const text = await printed(() => rollKey(called(system, id, { overlap: '2' })));
    expect((await send('127.0.4.2', shownKey(text))).status).toBe(403);
    expect((await send('127.0.4.1', shownKey(text))).status).toBe(200);
    const list = await printed(() => listKeys(called(system, '', { account: accountId })));
    expect(list.match(/ from 127\.0\.4\.1,2001:db8::\/32\n/g)).toHaveLength(2);
  });

  it.each(['', '10.0.0.0/33', 'example.com', '10.0.0.1,', '10.0.0.1, 10.0.0.2'])(
    'is not created with --allow %j',
    async (allow) => {
      await expect(openLimited(allow)).rejects.toThrow('--allow expects addresses and subnets');
    },
  );

  it.each([[['example.com']], [[]]])('is refused by the database with %j', async (allowed) => {
    const { accountId } = await openKey();
    const key = { accountId, keyHash: hashOfKey(createApiKey('test')), lastFour: 'abcd' };
    await expect(insertApiKey(system.database, { ...key, allowed })).rejects.toMatchObject({
      code: expect.stringMatching(/^(22P02|23514)$/),
    });
  });
});

describe('the last use of a key', () => {
  beforeAll(async () => {
    // Counts the statements that would record a use and the rows that they write. It runs as the owner,
    // because the API may not write to tables that it does not know.
    await system.database`create table noted (what text)`;
    await system.database`
      create function count_note() returns trigger language plpgsql security definer as $$
      begin insert into noted values (tg_level); return null; end $$`;
    await system.database`
      create trigger count_rows after update of last_used_at on api_keys
        for each row execute function count_note()`;
    await system.database`
      create trigger count_statements after update of last_used_at on api_keys
        for each statement execute function count_note()`;
  });
  afterAll(() => system.database`drop function count_note() cascade`);

  const writes = async () => {
    const [row] = await system.database<{ rows: number; statements: number }[]>`
      select count(*) filter (where what = 'ROW')::int as rows,
             count(*) filter (where what = 'STATEMENT')::int as statements from noted`;
    return exactlyOne(row);
  };
  const askTogether = async (apiKey: string) => {
    const asking = Array.from({ length: 20 }, () => ask(apiKey));
    for (const { status } of await Promise.all(asking)) expect(status).toBe(200);
  };

  it('is written once a minute, however many requests there are', async () => {
    const { id, apiKey } = await openKey();
    const ageOfUse = async () => {
      const [row] = await system.database<{ age: number | null }[]>`
        select extract(epoch from now() - last_used_at)::float as age
          from api_keys where id = ${id}`;
      return exactlyOne(row).age;
    };
    expect(await ageOfUse()).toBeNull();
    await system.database`truncate noted`;
    await askTogether(apiKey);
    expect(await ageOfUse()).toBeLessThan(60);
    const once = await writes();
    expect(once.rows).toBe(1);
    await askTogether(apiKey);
    expect(await writes()).toEqual(once);

    await system.database`
      update api_keys set last_used_at = now() - interval '61 seconds' where id = ${id}`;
    await system.database`truncate noted`;
    await askTogether(apiKey);
    expect(await ageOfUse()).toBeLessThan(60);
    expect(await writes()).toMatchObject({ rows: 1 });
  });

  it('delays no request: one passes while the row is locked', async () => {
    const { id, apiKey } = await openKey();
    await system.database.begin(async (sql) => {
      await sql`select from api_keys where id = ${id} for update`;
      expect((await ask(apiKey)).status).toBe(200);
    });
  });
});

describe('the look-up of a key', () => {
  it('takes one connection, however many requests send the key at once', async () => {
    const [busy, other] = [await openKey(), await openKey()];
    // The first requests of a key always wait for one query.
    for (const { apiKey } of [busy, other]) expect((await ask(apiKey)).status).toBe(200);
    const waiting = () => system.database<{ count: number }[]>`
      select count(*)::int as count from pg_stat_activity
       where wait_event_type = 'Lock' and datname = current_database()`;
    const asking: Promise<ApiAnswer>[] = [];
    await system.database.begin(async (sql) => {
      await sql`lock table api_keys in access exclusive mode`;
      asking.push(...Array.from({ length: 12 }, () => ask(busy.apiKey)), ask(other.apiKey));
      await eventually('both key look-ups wait', 10_000, async () => {
        const [row] = await waiting();
        expect(row?.count).toBeLessThanOrEqual(2);
        return row?.count === 2 ? true : undefined;
      });
    });
    for (const { status } of await Promise.all(asking)) expect(status).toBe(200);
  });
});

describe('corridor keys', () => {
  it('create makes a key with the options given, and shows it once', async () => {
    const { account } = await createTestAccount(system.database);
    const text = await printed(() =>
      createKey(
        called(system, '', {
          account: account.id,
          name: 'payroll',
          scopes: 'read,payouts:create',
          expires: '2999-01-01T00:00:00Z',
        }),
      ),
    );
    const client = createClient(system.apiUrl, shownKey(text));
    expect((await client('GET /v1/account')).status).toBe(200);
    expect((await client('POST /v1/quotes')).status).toBe(400);
    expect((await client('POST /v1/beneficiaries')).status).toBe(403);
    const listed = await printed(() => listKeys(called(system, '', { account: account.id })));
    expect(listed).toContain('payroll  read,payouts:create');
    expect(listed).toContain('active until 2999-01-01T00:00:00.000Z');
    expect(listed).not.toContain(shownKey(text));
  });

  it.each([
    [{ scopes: 'read,everything' }, '--scopes expects'],
    [{ scopes: '' }, '--scopes expects'],
    [{ expires: '2020-01-01T00:00:00Z' }, '--expires expects a time in the future'],
    [{ expires: 'tomorrow' }, '--expires expects a time in the future'],
    [{ name: 'a b' }, '--name expects'],
  ])('create refuses %j', async (wrong, message) => {
    const { accountId } = await openKey();
    await expect(createKey(called(system, '', { account: accountId, ...wrong }))).rejects.toThrow(
      message,
    );
  });

  it('roll makes a key of the same scopes, and the old one works for the overlap', async () => {
    const { id, apiKey, accountId } = await openKey({ scopes: ['read'] });
    const roll = () => rollKey(called(system, id, { overlap: '2' }));
    const text = await printed(roll);
    const rolled = createClient(system.apiUrl, shownKey(text));
    expect((await ask(apiKey)).status).toBe(200);
    expect((await rolled('GET /v1/account')).status).toBe(200);
    expect((await rolled('POST /v1/quotes')).status).toBe(403);
    const [old] = await system.database<{ inTime: boolean }[]>`
      select expires_at between now() + interval '119 minutes' and now() + interval '2 hours'
             as in_time from api_keys where id = ${id}`;
    expect(old).toEqual({ inTime: true });

    // Two keys of this name are active: a third one would soon be forgotten somewhere.
    await expect(
      createKey(called(system, '', { account: accountId, name: 'tested' })),
    ).rejects.toMatchObject({
      name: 'Refused',
      message: expect.stringContaining('2 active keys'),
    });
    await printed(() => createKey(called(system, '', { account: accountId, name: 'another' })));
    await system.database`update api_keys set expires_at = now() where id = ${id}`;
    expect((await ask(apiKey)).status).toBe(401);
    await expect(roll()).rejects.toMatchObject({
      name: 'Refused',
      message: expect.stringContaining('is not active'),
    });
    await printed(() => createKey(called(system, '', { account: accountId, name: 'tested' })));
  });

  it('roll without overlap ends the old key at once', async () => {
    const { id, apiKey } = await openKey();
    const text = await printed(() => rollKey(called(system, id, { overlap: '0' })));
    expect((await ask(apiKey)).status).toBe(401);
    expect((await ask(shownKey(text))).status).toBe(200);
  });

  it('roll of a key that expires requires an expiry for the new one', async () => {
    const { id } = await openKey({ expiresAt: new Date('2999-01-01') });
    const roll = (expires: string | undefined) =>
      rollKey(called(system, id, { overlap: '24', expires }));
    await expect(roll(undefined)).rejects.toThrow('set that of the new key with --expires');
    expect(await printed(() => roll('2999-06-01T00:00:00Z'))).toContain('2999-06-01');
  });

  it.each(['', '-1', '1.5', '721', 'a day'])('roll refuses an overlap of "%s"', async (overlap) => {
    const { id } = await openKey();
    const roll = rollKey(called(system, id, { overlap }));
    await expect(roll).rejects.toThrow('--overlap expects hours, 0 to 720');
  });

  it('roll makes one key when several run at the same time', async () => {
    const { id, accountId } = await openKey();
    const roll = () => rollKey(called(system, id, { overlap: '24' }));
    const text = await printed(async () => {
      const ends = await Promise.allSettled([roll(), roll(), roll()]);
      expect(ends.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    });
    expect(text.match(/API key/g)).toHaveLength(1);
    const rows = await system.database`
      select from api_keys where account_id = ${accountId} and name = 'tested'`;
    expect(rows.count).toBe(2);
  });

  it('revoke takes effect with the next request, and works only once', async () => {
    const { accountId } = await openKey();
    const text = await printed(() => createKey(called(system, '', { account: accountId })));
    const key = shownKey(text);
    expect((await ask(key)).status).toBe(200);
    await printed(() => revokeKey(called(system, shownId(text))));
    expect((await ask(key)).status).toBe(401);
    await expect(revokeKey(called(system, shownId(text)))).rejects.toThrow('already revoked');
    expect(await printed(() => listKeys(called(system, '', { account: accountId })))).toMatch(
      / {2}revoked \d{4}-/,
    );
  });

  it('is a command: create, roll, list, revoke', async () => {
    const { account } = await createTestAccount(system.database, { funds: {} });
    const corridor = async (words: string) => {
      const main = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
      const env = environmentOf(system.urls.operator);
      const reason = words.startsWith('list') ? [] : ['--reason', signature.reason];
      const args = [main, 'keys', ...words.split(' '), ...reason];
      return (await promisify(execFile)(process.execPath, args, { env })).stdout;
    };
    const made = await corridor(`create --account ${account.id} --name web --scopes read`);
    const rolled = await corridor(`roll ${shownId(made)}`);
    for (const text of [made, rolled]) expect((await ask(shownKey(text))).status).toBe(200);
    const listed = await corridor(`list --account ${account.id}`);
    const shown = (text: string, state: string) =>
      new RegExp(`^${shownId(text)}  …${shownKey(text).slice(-4)}  ${state}\n  web  read\n`, 'm');
    expect(listed).toMatch(shown(made, 'active until \\S+Z'));
    expect(listed).toMatch(shown(rolled, 'active'));
    expect(listed.match(/^ {2}web /gm)).toHaveLength(2);
    await corridor(`revoke ${shownId(made)}`);
    expect((await ask(shownKey(made))).status).toBe(401);
    expect((await ask(shownKey(rolled))).status).toBe(200);
    await expect(corridor(`revoke ${shownId(made)}`)).rejects.toMatchObject({ code: 1 });
  });
});
