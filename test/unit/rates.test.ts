import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, type KeyPairKeyObjectResult, sign } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { ConfigError, readStackConfig, readWorkerConfig } from '../../src/config.js';
import { type CurrencyRate, midOf, originOf } from '../../src/db/rates.js';
import { corridorCurrencies } from '../../src/domain/corridor.js';
import { formatRate, parseRate } from '../../src/domain/fx.js';
import { ecbSource, parseEcbDaily } from '../../src/rates/ecb.js';
import { referenceSource } from '../../src/rates/reference.js';
import { parseTable, tableSource } from '../../src/rates/table.js';
import { masterKey } from '../fixtures/keyring.js';

const daily = `<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
	<gesmes:subject>Reference rates</gesmes:subject>
	<gesmes:Sender>
		<gesmes:name>European Central Bank</gesmes:name>
	</gesmes:Sender>
	<Cube>
		<Cube time='2026-11-20'>
			<Cube currency='USD' rate='1.1612'/>
			<Cube currency='JPY' rate='180.42'/>
			<Cube currency='IDR' rate='19412.50'/>
		</Cube>
	</Cube>
</gesmes:Envelope>`;

let server: Server | undefined;

afterEach(() => {
  server?.close();
  server?.closeAllConnections();
  server = undefined;
});

/** Serves on 127.0.0.1 and returns the address. */
function serve(listener: RequestListener): Promise<string> {
  const started = createServer(listener);
  server = started;
  return new Promise((resolve, reject) => {
    started.once('error', reject);
    started.listen(0, '127.0.0.1', () => {
      const address = started.address();
      if (address === null || typeof address === 'string') reject(new Error('No port'));
      else resolve(`http://127.0.0.1:${address.port}/eurofxref-daily.xml`);
    });
  });
}

const settings = {
  DATABASE_URL: 'postgres://127.0.0.1/corridor',
  TEMPORAL_ADDRESS: '127.0.0.1:7233',
  SANDBOX_BANK_URL: 'http://127.0.0.1:8090',
  SANDBOX_BANK_TOKEN: 'a-bank-token-of-the-tests',
  MASTER_KEY: masterKey,
  SANDBOX_BANK_CALLBACK_SECRET: 'a-callback-secret-of-the-tests',
};
const pemOf = ({ publicKey, privateKey }: KeyPairKeyObjectResult) => ({
  publicKey: String(publicKey.export({ type: 'spki', format: 'pem' })),
  privateKey: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
});

describe('the source of rates', () => {
  test.each([undefined, '', 'ECB', 'corridor-reference-2026-11-20'])(
    'is required: a worker with RATE_SOURCE=%s does not start',
    (RATE_SOURCE) => {
      expect(() => readWorkerConfig({ ...settings, RATE_SOURCE })).toThrow(ConfigError);
      expect(() => readWorkerConfig({ ...settings, RATE_SOURCE })).toThrow(
        'RATE_SOURCE: expected reference, ecb or table',
      );
    },
  );

  test('is the configured one; a local stack uses the reference rates by default', () => {
    expect(readWorkerConfig({ ...settings, RATE_SOURCE: 'ecb' }).RATE_SOURCE).toBe('ecb');
    expect(readStackConfig({}).RATE_SOURCE).toBe('reference');
    expect(readStackConfig({ RATE_SOURCE: 'ecb' }).RATE_SOURCE).toBe('ecb');
  });

  test('reports whether its rates are for tests', () => {
    expect([referenceSource.isForTests, ecbSource('http://127.0.0.1').isForTests]).toEqual([
      true,
      false,
    ]);
  });
});

test('the address of the ECB’s file is https, except on a local stack', () => {
  const ecb = {
    ...settings,
    RATE_SOURCE: 'ecb',
    RATE_SOURCE_URL: 'http://mirror.example.com/d.xml',
  };
  expect(() => readWorkerConfig(ecb)).toThrow('RATE_SOURCE_URL: expected an https URL');
  readWorkerConfig({ ...ecb, WEBHOOKS_ALLOW_INSECURE: 'true' });
  readWorkerConfig({ ...ecb, RATE_SOURCE_URL: 'https://mirror.example.com/d.xml' });
});

describe('the settings of a signed table', () => {
  const { publicKey, privateKey } = pemOf(generateKeyPairSync('ed25519'));
  const table = {
    ...settings,
    RATE_SOURCE: 'table',
    RATE_TABLE_URL: 'https://rates.example.com/rates.json',
    RATE_TABLE_PUBLIC_KEY: publicKey,
  };

  test('are an https address and a public key', () => {
    const { RATE_SOURCE, RATE_TABLE_URL, RATE_TABLE_PUBLIC_KEY } = readWorkerConfig(table);
    expect({ ...table, RATE_SOURCE, RATE_TABLE_URL, RATE_TABLE_PUBLIC_KEY }).toEqual(table);
  });

  test.each([
    ['RATE_TABLE_URL', undefined],
    ['RATE_TABLE_URL', 'http://rates.example.com/rates.json'],
    ['RATE_TABLE_URL', 'http://127.0.0.1:8000/rates.json'],
    ['RATE_TABLE_URL', 'https://rates.example.com'],
    ['RATE_TABLE_URL', 'https://rates.example.com/rates.json?version=1'],
    ['RATE_TABLE_PUBLIC_KEY', undefined],
    ['RATE_TABLE_PUBLIC_KEY', privateKey],
    ['RATE_TABLE_PUBLIC_KEY', pemOf(generateKeyPairSync('x25519')).publicKey],
    ['RATE_TABLE_PUBLIC_KEY', publicKey.replace(/=\n/, '\n')],
  ])('are refused with %s=%s, but only when they are used', (name, value) => {
    expect(() => readWorkerConfig({ ...table, [name]: value })).toThrow(`${name}: expected an `);
    readWorkerConfig({ ...table, [name]: value, RATE_SOURCE: 'ecb' });
  });

  test.each([
    ['http://127.0.0.1:8000/rates.json', true],
    ['http://localhost/rates.json', true],
    ['https://rates.example.com/rates.json', true],
    ['http://127.0.0.1.example.com/rates.json', false],
    ['http://localhost:80@example.com/rates.json', false],
    ['http://10.0.0.1/rates.json', false],
  ])('in a local stack may be an http URL of this machine: %s', (RATE_TABLE_URL, isTaken) => {
    const read = () =>
      readWorkerConfig({ ...table, RATE_TABLE_URL, WEBHOOKS_ALLOW_INSECURE: 'true' });
    if (isTaken) expect(read()).toMatchObject({ RATE_TABLE_URL });
    else expect(read).toThrow('RATE_TABLE_URL: expected an https URL');
  });
});

describe('a mid rate', () => {
  const rate = (id: bigint, currency: string, perEuro: string, day: string): CurrencyRate => ({
    ...{ id, currency, perEuro, provider: 'ecb' },
    asOf: new Date(`2026-11-${day}T13:10:00.000Z`),
  });
  const rates = [
    rate(1n, 'EUR', '1', '20'),
    rate(2n, 'USD', '1.25', '20'),
    rate(3n, 'GBP', '0.8', '19'),
  ];

  test.each([
    ['USD', 'GBP', '0.64', 2n, 3n],
    ['GBP', 'USD', '1.5625', 3n, 2n],
  ])(
    'from %s to %s names both of its rates and has the time of the older one',
    (from, to, mid, first, last) => {
      const found = midOf(rates, from, to);
      expect(found && formatRate(found)).toBe(mid);
      expect(originOf(rates, from, to)).toEqual({
        rateProvider: 'ecb',
        rateAsOf: new Date('2026-11-19T13:10:00.000Z'),
        sourceRateId: first,
        destinationRateId: last,
      });
    },
  );

  test('of a currency without a stored rate is undefined and has no origin', () => {
    expect(midOf(rates, 'USD', 'CHF')).toBeUndefined();
    expect(() => originOf(rates, 'USD', 'CHF')).toThrow('from USD to CHF');
  });

  test('within one currency needs no rate', () => {
    const none = { rateProvider: 'par', sourceRateId: null, destinationRateId: null };
    expect(midOf([], 'CHF', 'CHF')?.toFixed()).toBe('1');
    expect(originOf([], 'CHF', 'CHF')).toMatchObject(none);
    expect(originOf(rates, 'USD', 'USD')).toMatchObject(none);
  });
});

describe('the reference table', () => {
  test('has a rate for every corridor currency and no other', async () => {
    const { perEuro } = await referenceSource.fetch();
    expect([...perEuro.keys()].sort()).toEqual([...corridorCurrencies()].sort());
    expect(perEuro.get('EUR')).toBe('1');
    for (const rate of perEuro.values()) expect(() => parseRate(rate)).not.toThrow();
  });

  test('is as of the moment it is read, and has its own date in its name', async () => {
    const before = Date.now();
    const { asOf } = await referenceSource.fetch();
    expect(asOf.getTime()).toBeGreaterThanOrEqual(before);
    expect(asOf.getTime()).toBeLessThanOrEqual(Date.now());
    expect(referenceSource.provider).toBe('corridor-reference-2026-11-20');
  });
});

describe('the daily document of the ECB', () => {
  test('is read with its day, its rates as they are written, and the euro', () => {
    const { asOf, perEuro } = parseEcbDaily(daily);
    expect(asOf.toISOString()).toBe('2026-11-20T13:10:00.000Z');
    expect(Object.fromEntries(perEuro)).toEqual({
      EUR: '1',
      USD: '1.1612',
      JPY: '180.42',
      IDR: '19412.50',
    });
    expect(parseEcbDaily(daily.replaceAll("'", '"')).perEuro).toEqual(perEuro);
  });

  test.each([
    ['2026-03-27', '13:10'],
    ['2026-03-30', '12:10'],
    ['2026-07-15', '12:10'],
    ['2026-10-23', '12:10'],
    ['2026-10-26', '13:10'],
  ])('is dated 14:10 Frankfurt time on %s', (day, utc) => {
    const { asOf } = parseEcbDaily(daily.replace('2026-11-20', day));
    expect(asOf.toISOString()).toBe(`${day}T${utc}:00.000Z`);
  });

  test('may contain a currency that is not supported yet', () => {
    const { perEuro } = parseEcbDaily(daily.replace("'JPY'", "'QQQ'"));
    expect([...perEuro.keys()]).toEqual(['EUR', 'USD', 'IDR']);
  });

  test.each([
    ['nothing', ''],
    ['another document', '<html><body>Service unavailable</body></html>'],
    ['no rates', daily.replaceAll(/<Cube currency.*\/>/g, '')],
    ['no day', daily.replace("time='2026-11-20'", '')],
    ['two days', daily.replace('<Cube>', "<Cube time='2026-11-19'>")],
    ['a day that does not exist', daily.replace('11-20', '02-31')],
    ['a month that does not exist', daily.replace('11-20', '13-01')],
    ['a currency twice', daily.replace("'JPY'", "'USD'")],
    ['the euro', daily.replace("'JPY'", "'EUR'")],
    ['a rate of zero', daily.replace('180.42', '0')],
    ['a rate with an exponent', daily.replace('180.42', '1e2')],
    ['a rate that is no number', daily.replace('180.42', '1.8.0')],
    ['a rate that is missing', daily.replace(" rate='180.42'", '')],
    ['a negative rate', daily.replace('180.42', '-180.42')],
    ['the end cut off', daily.slice(0, daily.indexOf('JPY'))],
  ])('is refused with %s', (_name, xml) => {
    expect(() => parseEcbDaily(xml)).toThrow(Error);
  });
});

describe('the ECB source', () => {
  test('fetches the document from its URL', async () => {
    const url = await serve((request, response) => {
      response.end(request.url === '/eurofxref-daily.xml' ? daily : '');
    });
    const source = ecbSource(url);
    expect(source.provider).toBe('ecb');
    expect((await source.fetch()).perEuro.get('USD')).toBe('1.1612');
  });

  test('refuses another status, even with a good body', async () => {
    let body = daily;
    const url = await serve((_request, response) => response.writeHead(503).end(body));
    await expect(ecbSource(url).fetch()).rejects.toThrow('status 503');
    body = daily.padEnd(1024 * 1024);
    await expect(ecbSource(url).fetch()).rejects.toThrow('status 503');
  });

  test('does not follow a redirect', async () => {
    const url = await serve((request, response) => {
      if (request.url === '/elsewhere') response.end(daily);
      else response.writeHead(302, { location: '/elsewhere' }).end();
    });
    await expect(ecbSource(url).fetch()).rejects.toThrow('status 302');
  });

  test('reads at most 256 KiB', async () => {
    const limit = 256 * 1024;
    let size = limit;
    const url = await serve((_request, response) => response.end(daily.padEnd(size)));
    expect((await ecbSource(url).fetch()).perEuro.size).toBe(4);
    size = limit + 1;
    await expect(ecbSource(url).fetch()).rejects.toThrow('over 262144 bytes');
  });

  test('stops an endless body at the limit', async () => {
    const url = await serve((_request, response) => {
      const chunk = Buffer.alloc(16 * 1024, ' ');
      const pour = () => {
        while (response.write(chunk));
      };
      response.on('drain', pour);
      pour();
    });
    await expect(ecbSource(url).fetch()).rejects.toThrow('over 262144 bytes');
  });

  test('times out on a server that does not answer and on one that stops in the middle', async () => {
    const silent = await serve(() => {});
    await expect(ecbSource(silent, 50).fetch()).rejects.toThrow(/timeout/i);
    server?.close();
    server?.closeAllConnections();
    const halting = await serve((_request, response) => response.write(daily.slice(0, 500)));
    await expect(ecbSource(halting, 50).fetch()).rejects.toThrow(/timeout/i);
  });

  test('fails when the connection is refused', async () => {
    const url = await serve(() => {});
    await new Promise((resolve) => server?.close(resolve));
    await expect(ecbSource(url).fetch()).rejects.toThrow(Error);
  });
});

describe('a table that the operator signs', () => {
  const json = '{"as_of":"2026-11-23T12:00:00Z","per_euro":{"USD":"1.1612","KES":"150.40"}}';
  const { publicKey, privateKey } = pemOf(generateKeyPairSync('ed25519'));
  const signed = (text: string, key = privateKey) =>
    sign(null, Buffer.from(text), key).toString('base64');
  /** Publishes a body with this signature and returns its address. */
  const publish = (body: string | Buffer, signature: string | undefined) =>
    serve((request, response) => {
      if (!request.url?.endsWith('.sig')) response.end(body);
      else if (signature === undefined) response.writeHead(404).end();
      else response.end(signature);
    });
  const fetched = async (body: string | Buffer, signature: string | undefined) =>
    tableSource(await publish(body, signature), publicKey, 2_000).fetch();

  test('is read with its time, its rates as they are written, and the euro', async () => {
    const { asOf, perEuro } = await fetched(json, signed(json));
    expect(asOf.toISOString()).toBe('2026-11-23T12:00:00.000Z');
    expect(Object.fromEntries(perEuro)).toEqual({ EUR: '1', USD: '1.1612', KES: '150.40' });
    // Base64 as written by programs that break lines.
    const lines = signed(json).replace(/(.{64})/, '$1\r\n');
    expect((await fetched(json, `${lines}\n`)).perEuro).toEqual(perEuro);
  });

  const otherKey = pemOf(generateKeyPairSync('ed25519')).privateKey;
  test.each([
    ['of another key', signed(json, otherKey)],
    ['of another table', signed(json.replace('1.1612', '1.1613'))],
    ['of the same table with a space more', signed(`${json} `)],
    ['cut off', signed(json).slice(0, 40)],
    ['that is empty', ''],
    ['that is no base64', '<html></html>'],
  ])('is refused with a signature %s', async (_name, signature) => {
    await expect(fetched(json, signature)).rejects.toThrow(
      'The signature of the rate table does not match RATE_TABLE_PUBLIC_KEY',
    );
  });

  test('is not even parsed without a signature', async () => {
    await expect(fetched('{', signed(json))).rejects.toThrow(
      'does not match RATE_TABLE_PUBLIC_KEY',
    );
    await expect(fetched(json, undefined)).rejects.toThrow(
      'The signature of the table of rates answered with status 404',
    );
  });

  test('may have at most 256 KiB', async () => {
    const [longest, longer] = [256 * 1024, 256 * 1024 + 1].map((length) => json.padEnd(length));
    expect((await fetched(longest ?? '', signed(longest ?? ''))).perEuro.size).toBe(3);
    server?.close();
    await expect(fetched(longer ?? '', signed(longer ?? ''))).rejects.toThrow('over 262144 bytes');
  });

  test('times out when it is not answered', async () => {
    const silent = await serve(() => {});
    await expect(tableSource(silent, publicKey, 50).fetch()).rejects.toThrow(/timeout/i);
  });

  test.each([
    ['nothing', ''],
    ['the end cut off', json.slice(0, -1)],
    ['no time', json.replace('as_of', 'at')],
    ['a time without a zone', json.replace('Z', '')],
    ['a day that does not exist', json.replace('11-23', '02-31')],
    ['an unknown field', json.replace('{', '{"per_dollar":{},')],
    ['no rates', json.replace(/\{"USD.*\}\}/, '{}}')],
    ['a rate that is a JSON number', json.replace('"1.1612"', '1.1612')],
    ['a rate of zero', json.replace('1.1612', '0')],
    ['a negative rate', json.replace('1.1612', '-1')],
    ['a rate with an exponent', json.replace('1.1612', '1e2')],
    ['an unknown currency', json.replace('KES', 'KSH')],
    ['another euro', json.replace('KES', 'EUR')],
    ['a currency twice', json.replace('KES', 'USD')],
  ])('is refused with %s, although it is signed', async (_name, text) => {
    expect(() => parseTable(text)).toThrow(Error);
    await expect(fetched(text, signed(text))).rejects.not.toThrow('signature');
  });

  test('is refused when it is not UTF-8', async () => {
    const bytes = Buffer.from(json.replace('KES', 'K\u00c9S'), 'latin1');
    const signature = sign(null, bytes, privateKey).toString('base64');
    await expect(fetched(bytes, signature)).rejects.toThrow(/not valid/);
  });

  test('can be signed with the commands of docs/operations.md', async () => {
    const operations = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
    const commands = /```sh\n(openssl genpkey[^`]*)```/.exec(operations)?.[1] ?? '';
    expect(commands.trim().split('\n')).toHaveLength(3);
    const example = /```json\n(\{ "as_of"[^`]*)```/.exec(operations)?.[1] ?? '';
    const folder = mkdtempSync(join(tmpdir(), 'corridor-rates-'));
    try {
      writeFileSync(join(folder, 'rates.json'), example);
      execFileSync('sh', ['-ec', commands], { cwd: folder, stdio: 'ignore' });
      const read = (name: string) => readFileSync(join(folder, name), 'utf8');
      const RATE_TABLE_PUBLIC_KEY = read('rates-public.pem');
      const RATE_TABLE_URL = 'https://rates.example.com/rates.json';
      readWorkerConfig({
        ...settings,
        RATE_SOURCE: 'table',
        RATE_TABLE_URL,
        RATE_TABLE_PUBLIC_KEY,
      });
      const url = await publish(example, read('rates.json.sig'));
      const { perEuro } = await tableSource(url, RATE_TABLE_PUBLIC_KEY).fetch();
      expect(perEuro.get('KES')).toBe('150.40');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
