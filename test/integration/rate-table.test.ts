import { execFile } from 'node:child_process';
import { generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startRates } from '../../src/activities/maintenance.js';
import { transaction } from '../../src/db/client.js';
import { decideRate, listWaitingRates, pinProvider, storeRates } from '../../src/db/rates.js';
import { createRegistry } from '../../src/metrics.js';
import { ecbProvider } from '../../src/rates/ecb.js';
import { referenceSource } from '../../src/rates/reference.js';
import { tableProvider, tableSource } from '../../src/rates/table.js';
import { createClient } from '../fixtures/client.js';
import { masterKey } from '../fixtures/keyring.js';
import { signedBy } from '../fixtures/operators.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';
import { temporalAddress } from '../servers/temporalAddress.js';

const registry = await createRegistry('test');
const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;
const by = signedBy('ada');
const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const pem = String(publicKey.export({ type: 'spki', format: 'pem' }));

let system: TestSystem;
let server: Server;
let url: string;
/** The table and signature that the operator publishes. */
let published: { readonly table: string; readonly signature: string };

beforeAll(async () => {
  system = await startSystem({ startsWorker: false });
  server = createServer((request, response) => {
    response.end(request.url === '/rates.json' ? published.table : published.signature);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}/rates.json`;
});
afterAll(async () => {
  server.close();
  await system.stop();
});

/** Each test begins with one table already read: 1.16 dollars and 150 shillings per euro. */
beforeEach(async () => {
  await deleteRates();
  await pinProvider(system.database, tableProvider, by);
  expect(await read({ USD: '1.16', GBP: '0.88' }, 10 * minuteMs)).toEqual([]);
});

/** Deletes all rates with the triggers disabled that otherwise prevent it. */
const deleteRates = () =>
  transaction(system.database, async (sql) => {
    await sql`select set_config('session_replication_role', 'replica', true)`;
    await sql`truncate rates, rate_decisions, current_rates`;
  });

type Figures = Readonly<Record<string, string>>;

function publish(figures: Figures, ageMs = 0): void {
  const as_of = new Date(Date.now() - ageMs).toISOString();
  const table = JSON.stringify({ as_of, per_euro: figures });
  published = { table, signature: sign(null, Buffer.from(table), privateKey).toString('base64') };
}

/** Lets a worker read the published table; returns its log lines. */
async function refresh(): Promise<readonly unknown[]> {
  const lines: unknown[] = [];
  const write = (line: string) => lines.push(JSON.parse(line));
  const log = pino({ level: 'info' }, { write });
  const rateSource = tableSource(url, pem);
  await startRates({ database: system.worker, rateSource, log }, dayMs);
  return lines;
}

function read(figures: Figures, ageMs = 0): Promise<readonly unknown[]> {
  publish(figures, ageMs);
  return refresh();
}

/** The mid rate of a quote from dollars to pounds, or the reason why there is none. */
async function quoted(client = system.client): Promise<unknown> {
  const { body } = await client('POST /v1/quotes', {
    json: { source_currency: 'USD', destination_currency: 'GBP', amount: 10_000 },
  });
  return body['mid_rate'] ?? body['code'];
}
const [mid, newMid] = ['0.758620689655', '0.752136752137'];

describe('a rate table signed by the operator', () => {
  it('prices quotes, and is named as the provider', async () => {
    expect(await quoted()).toBe(mid);
    expect(await read({ USD: '1.17', GBP: '0.88' })).toEqual([]);
    const { body } = await system.client(
      'GET /v1/rates?source_currency=USD&destination_currency=GBP',
    );
    expect(body['data']).toMatchObject([{ mid_rate: newMid, rate_source: { provider: 'table' } }]);
  });

  it('with a wrong signature is logged and changes nothing, until the signature is right', async () => {
    publish({ USD: '2', GBP: '1' });
    const { signature } = published;
    publish({ USD: '1.17', GBP: '0.88' });
    const right = published;
    published = { ...published, signature };
    expect(await refresh()).toMatchObject([
      {
        level: 50,
        err: { message: 'The signature of the rate table does not match RATE_TABLE_PUBLIC_KEY' },
      },
    ]);
    expect(await quoted()).toBe(mid);
    published = right;
    expect(await refresh()).toEqual([]);
    expect(await quoted()).toBe(newMid);
  });

  it('with a wrong signature stops a worker from starting without stored rates', async () => {
    await deleteRates();
    publish({ USD: '1.17', GBP: '0.88' });
    published = { ...published, signature: 'AAAA' };
    const env = {
      ...process.env,
      DATABASE_URL: system.urls.worker,
      TEMPORAL_ADDRESS: temporalAddress(),
      MASTER_KEY: masterKey,
      SANDBOX_BANK_URL: system.bank.url,
      SANDBOX_BANK_TOKEN: system.bank.apiToken,
      WEBHOOKS_ALLOW_INSECURE: 'true',
      RATE_SOURCE: 'table',
      RATE_TABLE_URL: url,
      RATE_TABLE_PUBLIC_KEY: pem,
    };
    const main = fileURLToPath(new URL('../../dist/src/worker/main.js', import.meta.url));
    await expect(promisify(execFile)(process.execPath, [main], { env })).rejects.toMatchObject({
      stdout: expect.stringContaining('does not match RATE_TABLE_PUBLIC_KEY'),
    });
  });

  it('with an invalid rate changes nothing, until it is right', async () => {
    const lines = await read({ USD: '1.17', GBP: '88 %' });
    expect(lines).toMatchObject([{ err: { message: 'Not a decimal rate: 88 %' } }]);
    expect(await quoted()).toBe(mid);
    await read({ USD: '1.17', GBP: '0.88' });
    expect(await quoted()).toBe(newMid);
  });

  it('from the future is refused, and a current one is accepted', async () => {
    const lines = await read({ USD: '1.17', GBP: '0.88' }, -6 * minuteMs);
    expect(lines).toMatchObject([{ err: { constraint_name: 'rate_from_the_future' } }]);
    expect(await quoted()).toBe(mid);
    await read({ USD: '1.17', GBP: '0.88' });
    expect(await quoted()).toBe(newMid);
  });

  it('older than the previous one changes nothing', async () => {
    // Not even for a currency that is missing in the last table.
    expect(await read({ USD: '1.17', GBP: '0.88', KES: '150' }, 20 * minuteMs)).toEqual([]);
    expect(await quoted()).toBe(mid);
    const found = await system.database`select from rates where currency = 'KES'`;
    expect(found.length).toBe(0);
  });

  it('that is stale does not price quotes, and the next one does', async () => {
    await deleteRates();
    await read({ USD: '1.16', GBP: '0.88' }, 2 * dayMs);
    expect(await quoted()).toBe('rate_unavailable');
    // Anybody can ask for a currency without a rate, which must not look like a failure of the service.
    const requests = await registry.getSingleMetricAsString('corridor_http_request_seconds');
    expect(requests).toMatch(/route="\/v1\/quotes".*status="503-rate"/);
    await read({ USD: '1.17', GBP: '0.88' });
    expect(await quoted()).toBe(newMid);
  });

  it('with a rate that jumped leaves only that rate waiting for a decision', async () => {
    expect(await read({ USD: '1.40', GBP: '0.88' }, 5 * minuteMs)).toMatchObject([
      { level: 40, currency: 'USD', perEuro: '1.40', lastPerEuro: '1.16' },
    ]);
    expect(await quoted()).toBe(mid);
    const [waiting] = await listWaitingRates(system.database);
    await decideRate(system.database, String(waiting?.id), 'accepted', by);
    expect(await quoted()).toBe('0.628571428571');
  });

  it('is the only provider while it is pinned, and is refused while another is', async () => {
    const perEuro = new Map([['USD', '1.17']]);
    for (const other of [ecbProvider, referenceSource]) {
      const { provider, isForTests } = other;
      const stored = storeRates(
        system.worker,
        { provider, isForTests },
        { asOf: new Date(), perEuro },
      );
      await expect(stored).rejects.toThrow(`rates of ${provider} are refused, those of table are`);
    }
    expect(await quoted()).toBe(mid);
    await pinProvider(system.database, ecbProvider, by);
    await expect(read({ USD: '1.17', GBP: '0.88' })).rejects.toThrow('rates of table are refused');
    expect(await quoted()).toBe('rate_unavailable');
    await pinProvider(system.database, tableProvider, by);
    await read({ USD: '1.17', GBP: '0.88' });
    expect(await quoted()).toBe(newMid);
  });

  it('may be older for a test account than for a live one', async () => {
    const live = await createTestAccount(system.database, { mode: 'live' });
    const liveClient = createClient(system.apiUrl, live.apiKey);
    expect([await quoted(), await quoted(liveClient)]).toEqual([mid, mid]);
    await deleteRates();
    await read({ USD: '1.16', GBP: '0.88' }, 2 * 60 * minuteMs);
    expect([await quoted(), await quoted(liveClient)]).toEqual([mid, 'rate_unavailable']);
  });
});
