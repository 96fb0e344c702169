import { createServer, type RequestListener, type Server } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { ConfigError, readStackConfig, readWorkerConfig } from '../../src/config.js';
import { type CurrencyRate, midOf, originOf } from '../../src/db/rates.js';
import { corridorCurrencies } from '../../src/domain/corridor.js';
import { formatRate, parseRate } from '../../src/domain/fx.js';
import { ecbSource, parseEcbDaily } from '../../src/rates/ecb.js';
import { referenceSource } from '../../src/rates/reference.js';
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

/** Serves on 127.0.0.1 and answers the address. */
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

describe('the source of rates', () => {
  const settings = {
    DATABASE_URL: 'postgres://127.0.0.1/corridor',
    TEMPORAL_ADDRESS: '127.0.0.1:7233',
    SANDBOX_BANK_URL: 'http://127.0.0.1:8090',
    SANDBOX_BANK_TOKEN: 'a-bank-token-of-the-tests',
    MASTER_KEY: masterKey,
    SANDBOX_BANK_CALLBACK_SECRET: 'a-callback-secret-of-the-tests',
  };

  test.each([undefined, '', 'ECB', 'corridor-reference-2026-11-20'])(
    'has to be said: a worker with %s does not start',
    (RATE_SOURCE) => {
      expect(() => readWorkerConfig({ ...settings, RATE_SOURCE })).toThrow(ConfigError);
      expect(() => readWorkerConfig({ ...settings, RATE_SOURCE })).toThrow(
        'RATE_SOURCE: expected reference or ecb',
      );
    },
  );

  test('is the one that was said; a local stack says that of tests', () => {
    expect(readWorkerConfig({ ...settings, RATE_SOURCE: 'ecb' }).RATE_SOURCE).toBe('ecb');
    expect(readStackConfig({}).RATE_SOURCE).toBe('reference');
    expect(readStackConfig({ RATE_SOURCE: 'ecb' }).RATE_SOURCE).toBe('ecb');
  });

  test('says whether its figures are for tests', () => {
    expect([referenceSource.isForTests, ecbSource('http://127.0.0.1').isForTests]).toEqual([
      true,
      false,
    ]);
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
  ])('from %s to %s names both halves and is as old as the older', (from, to, mid, first, last) => {
    const found = midOf(rates, from, to);
    expect(found && formatRate(found)).toBe(mid);
    expect(originOf(rates, from, to)).toEqual({
      rateProvider: 'ecb',
      rateAsOf: new Date('2026-11-19T13:10:00.000Z'),
      sourceRateId: first,
      destinationRateId: last,
    });
  });

  test('that nobody has given comes from nowhere', () => {
    expect(midOf(rates, 'USD', 'CHF')).toBeUndefined();
    expect(() => originOf(rates, 'USD', 'CHF')).toThrow('from USD to CHF');
  });

  test('within one currency needs no rate', () => {
    const none = { rateProvider: 'par', sourceRateId: null, destinationRateId: null };
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

  test('holds at the moment it is read and carries its date in its name', async () => {
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

  test('may have a currency that we do not know yet', () => {
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

  test('reads 256 KiB and not a byte more', async () => {
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

  test('gives up on a server that does not answer and on one that stops in the middle', async () => {
    const silent = await serve(() => {});
    await expect(ecbSource(silent, 50).fetch()).rejects.toThrow(/timeout/i);
    server?.close();
    server?.closeAllConnections();
    const halting = await serve((_request, response) => response.write(daily.slice(0, 500)));
    await expect(ecbSource(halting, 50).fetch()).rejects.toThrow(/timeout/i);
  });

  test('fails when nobody listens', async () => {
    const url = await serve(() => {});
    await new Promise((resolve) => server?.close(resolve));
    await expect(ecbSource(url).fetch()).rejects.toThrow(Error);
  });
});
