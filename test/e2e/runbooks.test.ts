import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import { appendFile, copyFile, mkdir, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { freePort, listenOnAnyPort } from '../../sandbox/stack/ports.js';
import { type PostgresPart, startPostgres } from '../../sandbox/stack/postgres.js';
import type { Part } from '../../sandbox/stack/process.js';
import { connectDatabase, type Database, exactlyOne } from '../../src/db/client.js';
import { findPayoutById } from '../../src/db/payouts.js';
import { eventually } from '../assertions/eventually.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { type Line, openLine } from '../fakes/line.js';
import { startReceiver } from '../fakes/receiver.js';
import { openTlsLine } from '../fakes/tlsLine.js';
import { makeCertificates } from '../fixtures/certificates.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { blocksOf } from '../fixtures/fencedBlocks.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { sectionOf } from '../fixtures/runbookEntries.js';
import { copyCluster, giveToOwner } from '../servers/clusterCopy.js';
import { composeOf } from '../servers/composeStandIn.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import {
  followRunbook,
  type OperatorShell,
  openOperatorShell,
  type Tool,
  type Words,
  watchSymptoms,
} from '../servers/operatorShell.js';
import { type Processes, startProcesses } from '../servers/processes.js';

/** A deadline for a busy machine, not the promised time. */
const limitMs = 60_000;
const run = promisify(execFile);

let parts: Processes;
let line: Line;
/** The URL of the server to which the forwarder connects. */
let primaryUrl: string;
let standby: PostgresPart | undefined;
/** The current primary database, connected as its owner. */
let database: Database;
let rates: { readonly server: Server; readonly url: string; isDead: boolean };
/** Additional environment of our processes, from their next start on. */
const env: Record<string, string> = {};
let operatorKey: string;
let shell: OperatorShell;
let customer: Customer;

beforeAll(async () => {
  rates = await serveRates();
  Object.assign(env, { RATE_SOURCE: 'ecb', RATE_SOURCE_URL: `${rates.url}/daily.xml` });
  parts = await startProcesses({
    env,
    lineTo: async (url) => {
      primaryUrl = url;
      line = await openLine(url, (client, dial) => {
        dial(primaryUrl).pipe(client);
      });
      return line.url;
    },
  });
  ({ database } = parts);
  operatorKey = parts.operatorEnv['CORRIDOR_OPERATOR_KEY'] ?? '';
  shell = await openOperatorShell(operatorEnv, {
    docker: composeOf(parts, env, psql),
    psql: ([url = '', , statement = '']) => psql(statement, url),
  });
  customer = await openCustomer();
});
afterAll(async () => {
  // Stopped first, since they would wait for the standby while they stop.
  for (const name of ['api', 'worker', 'batch-worker'] as const)
    if (parts?.pids()[name] !== undefined) await parts.stop(name);
  await standby?.stop();
  await parts?.remove();
  await Promise.all([shell?.close(), line?.close()]);
  rates?.server.close();
});

// Repairs what a failed test left down, so that the next test does not fail too.
beforeEach(() => parts.startAll());
/** Whatever failed, every currency must balance and the bank must have paid nothing twice. */
afterEach(async () => {
  expect(await unbalancedCurrencies(database)).toEqual([]);
  const transfers = await parts.transfers();
  expect(new Set(transfers).size).toBe(transfers.length);
});

/** The operator's environment, which reaches the database in the same way as the processes do. */
function operatorEnv() {
  const { DATABASE_URL: url = '' } = parts.operatorEnv;
  return {
    ...parts.operatorEnv,
    DATABASE_URL: Object.assign(new URL(url), { host: new URL(line.url).host }).href,
    SANDBOX_BANK_URL: parts.rail.url,
    CORRIDOR_OPERATOR_KEY: operatorKey,
    CORRIDOR_API_URL: parts.apiUrl,
    CORRIDOR_API_KEY: customer?.apiKey ?? '',
  };
}

/** Runs a statement and prints its result roughly as `psql` does. */
async function psql(statement: string, url = primaryUrl): Promise<string> {
  const connection = connectDatabase({ url, poolSize: 1, applicationName: 'psql' });
  try {
    const rows = await connection.unsafe(statement);
    return `${rows.map((row) => Object.values(row).join(' | ')).join('\n')}\n`;
  } finally {
    await connection.end({ timeout: 5 });
  }
}

/** The metrics of every process that has logged its metrics URL and responds. */
async function readMetrics(): Promise<string> {
  const urls = parts.lines.flatMap((text) => {
    const [, url] = /"metrics":"(http[^"]+)"/.exec(text) ?? [];
    const [, ofWorker] = /"part":"worker.*"ready":"(http[^"]+)"/.exec(text) ?? [];
    return url ?? ofWorker ?? [];
  });
  const read = async (url: string) => (await fetch(`${url}/metrics`)).text();
  return (await Promise.all([...new Set(urls)].map((url) => read(url).catch(() => '')))).join('\n');
}

type Customer = {
  readonly accountId: string;
  readonly apiKey: string;
  readonly client: ApiClient;
  readonly item: (reference: string) => Readonly<Record<string, string>>;
  readonly pay: (reference: string) => Promise<string>;
};

async function openCustomer(): Promise<Customer> {
  const { account, apiKey } = await createTestAccount(database);
  const client = createClient(parts.apiUrl, apiKey);
  const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const item = (reference: string) => ({
    ...{ source_currency: 'USD', amount: '1000', beneficiary: payee, reference },
  });
  return {
    ...{ accountId: account.id, apiKey, client, item },
    pay: async (reference) => {
      const answer = await client('POST /v1/payouts', { form: item(reference) });
      return textOf(answer, 'id');
    },
  };
}

const words: Words = { TEXT: 'what the bank has said' };

/** Starts to follow an entry, before its incident happens. */
async function runbook(title: string, its: Words = {}, terminal = shell) {
  const symptomsAreThere = await watchSymptoms(title, readMetrics);
  const walk = followRunbook(terminal, title, { ...words, ...its });
  return {
    ...walk,
    /** Waits for the entry's symptoms: its metrics, and the output of its commands. */
    suffer: async () => {
      await walk.seen('Symptoms.');
      await symptomsAreThere();
    },
    /** Runs the rest of the entry's commands and waits until the output shows that they worked. */
    recover: async () => {
      await walk.follow();
      await walk.seen('It worked when');
    },
  };
}

/** Serves the ECB's rates of a week ago until the test makes it fail. */
async function serveRates() {
  const day = new Date(Date.now() - 7 * 86_400_000).toISOString().slice(0, 10);
  const xml = `<Cube><Cube time="${day}"><Cube currency="USD" rate="1.16"/></Cube></Cube>`;
  const served = { isDead: false };
  const server = createServer((request, response) => {
    if (request.url !== '/daily.xml')
      createReadStream(join(shell.directory, request.url ?? '')).pipe(response);
    else if (served.isDead) response.destroy();
    else response.end(xml);
  });
  const url = `http://127.0.0.1:${await listenOnAnyPort(server)}`;
  return Object.assign(served, { server, url });
}

it('The rate source is down', async () => {
  const { client, item } = customer;
  const walk = await runbook('The rate source is down', { URL: `${rates.url}/rates.json` });
  rates.isDead = true;
  const refused = await client('POST /v1/payouts', { form: item('Too old') });
  expect(refused).toMatchObject({ status: 503, body: { code: 'rate_unavailable' } });
  await walk.suffer();
  // The table is the guide's example with today's date; the commands that sign it are the guide's too.
  const section = sectionOf('Rates');
  const [example = ''] = blocksOf(section, 'json');
  const table = example.replace(/"as_of": "[^"]+"/, `"as_of": "${new Date().toISOString()}"`);
  await writeFile(join(shell.directory, 'rates.json'), table);
  const [signing = ''] = blocksOf(section, 'sh');
  expect(await shell.run(signing)).toMatchObject({ code: 0 });
  await walk.recover();
  const id = textOf(await client('POST /v1/payouts', { form: item('Invoice 1') }), 'id');
  await untilStatus(client, id, 'settled');
});

describe.concurrent('concurrently:', () => {
  it('The bank contradicts itself', async () => {
    const { client, pay } = await openCustomer();
    const id = await pay('Invoice 2');
    await untilStatus(client, id, 'settled');
    const walk = await runbook('The bank contradicts itself', { PAYOUT: id });
    const row = exactlyOne(await findPayoutById(database, id));
    const rejected = newsOf(row, { type: 'rejected', code: 'AC04' });
    const { apiUrl, callbackSecret } = parts;
    expect(await callBack({ apiUrl, bank: { callbackSecret } }, [rejected])).toBe(200);
    await walk.suffer();
    await walk.recover();
    expect(walk.printed()).toContain('grace: markSettled');
    expect((await client(`GET /v1/payouts/${id}`)).body).toMatchObject({ status: 'settled' });
  });

  it('An endpoint fails', async () => {
    const owner = await openCustomer();
    const receiver = await startReceiver();
    const events = ['*'];
    await owner.client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events } });
    const own = {
      ...shell,
      run: (command: string) => shell.run(command, { CORRIDOR_API_KEY: owner.apiKey }),
    };
    const start = { ENDPOINT: /\bwe_\w+/, ACCOUNT: /\bacc_\w+/, TIME: new Date().toISOString() };
    const walk = await runbook('An endpoint fails', start, own);
    receiver.answerWith(500);
    const paid = Array.from({ length: 12 }, (_, n) => owner.pay(`Dead ${n}`));
    const ids = await Promise.all(paid);
    await walk.suffer();
    await walk.follow('/test');
    expect(walk.printed()).toContain(owner.accountId);
    receiver.answerWith(200);
    await walk.recover();
    expect(walk.printed()).toContain('"delivered":true');
    await Promise.all(
      ids.map((id) =>
        receiver.next(({ body }) => body.includes(id) && body.includes('payout.settled')),
      ),
    );
    await receiver.close();
  });

  it('A batch is stuck', async () => {
    const { client, item } = await openCustomer();
    const start = { BATCH: /\bbat_\w+/, PAYOUT: /corridor payouts show (po_\w+)/ };
    const walk = await runbook('A batch is stuck', start);
    parts.signal('batch-worker', 'SIGSTOP');
    const references = ['Item 1', 'simulate: wrong amount', 'Item 3'];
    const json = { payouts: references.map(item) };
    const id = textOf(await client('POST /v1/batches', { json }), 'id');
    await shell.run(`corridor batches pause ${id} --reason 'by mistake'`);
    parts.signal('batch-worker', 'SIGCONT');
    await walk.suffer();
    await walk.recover();
    expect((await client(`GET /v1/batches/${id}`)).body).toMatchObject({ status: 'completed' });
  });

  it('A certificate has expired', async ({ onTestFinished }) => {
    const certificates = await makeCertificates();
    const target = parts.operatorEnv['TEMPORAL_ADDRESS'] ?? '';
    const tls = await openTlsLine(target, certificates);
    onTestFinished(() => tls.close());
    const { cert, key } = certificates.client;
    const expired = join(certificates.directory, 'expired.pem');
    await expireNow(certificates.ca, certificates.client, expired);
    const settings = {
      TEMPORAL_ADDRESS: tls.address,
      TEMPORAL_TLS_CA_FILE: certificates.ca.cert,
      TEMPORAL_TLS_CERT_FILE: expired,
      TEMPORAL_TLS_KEY_FILE: key,
    };
    let replica: Part | undefined;
    const restart = async () => {
      await replica?.stop();
      replica = await parts.startReplica('api', { env: settings });
    };
    onTestFinished(() => replica?.stop());
    const docker: Tool = async (args) => {
      expect(args).toContain('api');
      await restart();
      return '';
    };
    const own = await openOperatorShell(() => ({ ...operatorEnv(), ...settings }), { docker });
    onTestFinished(() => own.close());
    const files = { CERTIFICATE: expired, RENEWED: cert };
    const walk = await runbook('A certificate has expired', files, own);
    await restart();
    const endSeconds = Date.parse(certificateIn(expired).validTo) / 1000;
    const ends = async () =>
      (await readMetrics()).match(/^corridor_certificate_end_\w+\{.*TEMPORAL_TLS_CERT.*\} (.*)$/m);
    expect((await ends())?.[1]).toBe(String(endSeconds));
    await walk.suffer();
    await walk.recover();
    const { validTo } = certificateIn(expired);
    expect(Date.parse(validTo)).toBeGreaterThan(Date.now());
    expect((await ends())?.[1]).toBe(String(Date.parse(validTo) / 1000));
  });

  it('A clock is off', async ({ onTestFinished }) => {
    const offsetFile = join(parts.directory, 'offset');
    const clock = join(parts.directory, 'clock.mjs');
    await writeFile(offsetFile, '600000');
    await writeFile(clock, skewedClock(offsetFile));
    const settings = { NODE_OPTIONS: `--import ${pathToFileURL(clock).href}` };
    const replica = await parts.startReplica('api', { env: settings });
    onTestFinished(() => replica.stop());
    const own = await openOperatorShell(() => ({ ...operatorEnv(), ...settings }), {
      timedatectl: async () => 'System clock synchronized: no\n',
      chronyc: async (args) => {
        expect(args).toEqual(['makestep']);
        await writeFile(offsetFile, '0');
        return '200 OK\n';
      },
    });
    onTestFinished(() => own.close());
    const announced = parts.lines.find((text) => text.includes(replica.announced)) ?? '';
    const [, metricsUrl = ''] = /"metrics":"(http[^"]+)"/.exec(announced) ?? [];
    const offBySeconds = async () => {
      const page = await (await fetch(`${metricsUrl}/metrics`)).text();
      const [, seconds = ''] = /^corridor_clock_seconds\{.*\} (.*)$/m.exec(page) ?? [];
      return Number.parseFloat(seconds) - Date.now() / 1000;
    };
    const walk = await runbook('A clock is off', {}, own);
    expect(await offBySeconds()).toBeCloseTo(600, -1);
    await walk.suffer();
    await walk.recover();
    expect(await offBySeconds()).toBeCloseTo(0, -1);
  });
});

/** A module that shifts the clock of the process that loads it by the offset in a file. */
const skewedClock = (offsetFile: string) => `
import { createReadStream, readFileSync } from 'node:fs';
const now = Date.now;
const offset = () => Number.parseInt(readFileSync('${offsetFile}', 'utf8'), 10);
globalThis.Date = class extends Date {
  constructor(...args) { super(...(args.length === 0 ? [now() + offset()] : args)); }
  static now() { return now() + offset(); }
};
`;

function certificateIn(file: string) {
  return new X509Certificate(readFileSync(file));
}

type Pair = { readonly cert: string; readonly key: string };

/** Issues the same certificate again with a lifetime of zero days. */
async function expireNow(ca: Pair, { cert, key }: Pair, out: string): Promise<void> {
  const request = `${out}.csr`;
  await run('openssl', ['x509', '-x509toreq', '-in', cert, '-signkey', key, '-out', request]);
  const signing = ['-CA', ca.cert, '-CAkey', ca.key, '-days', '0'];
  await run('openssl', ['x509', '-req', '-in', request, ...signing, '-out', out]);
}

it('A key is lost', async () => {
  const { client, accountId } = await openCustomer();
  const url = 'http://127.0.0.1:9/';
  const json = { url, events: ['*'] };
  const endpoint = await client('POST /v1/webhook_endpoints', { json });
  await shell.run("corridor operators add otto --role operate --reason 'new here'");
  let apiKey = '';
  const own = {
    ...shell,
    run: (command: string) => shell.run(command, { CORRIDOR_API_KEY: apiKey }),
  };
  const start = { ACCOUNT: accountId, KEY: /\bkey_\w+/, OPERATOR: 'otto', ADMIN: 'grace' };
  const walk = await runbook('A key is lost', { ...start, ENDPOINT: textOf(endpoint, 'id') }, own);
  const stranger = createClient(parts.apiUrl, `${customer.apiKey}x`);
  expect(await stranger('GET /v1/balances')).toMatchObject({ status: 401 });
  await walk.suffer();
  await walk.follow('operators roll');
  [apiKey = ''] = /\bcor_test_\w+/.exec(walk.printed()) ?? [];
  expect(await client('GET /v1/balances')).toMatchObject({ status: 401 });
  await walk.follow('rotate_secret');
  const keys = walk.printed().match(/\bcop_\w+/g) ?? [];
  expect(keys).toHaveLength(2);
  operatorKey = keys[1] ?? '';
  await walk.recover();
  expect(walk.printed()).toContain('"secret":"whsec_');
});

it('The rail is down', async () => {
  const { client, pay } = customer;
  const walk = await runbook('The rail is down', { PAYOUT: /\bpo_\w+/ });
  await parts.stop('sandbox-bank');
  const id = await pay('Nobody answers');
  await walk.suffer();
  expect((await client(`GET /v1/payouts/${id}`)).body).toMatchObject({ status: 'processing' });
  await walk.recover();
  expect((await parts.transfers()).filter((key) => key.includes(id))).toHaveLength(1);
});

it('Temporal is down', async () => {
  const { client, item, pay } = customer;
  const walk = await runbook('Temporal is down');
  // The bank reports this payout while Temporal is down.
  const underWay = await pay('simulate: delay 3s');
  await untilStatus(client, underWay, 'sent');
  await parts.crash('temporal');
  const taken = await client('POST /v1/payouts', { form: item('While Temporal is away') });
  expect(taken).toMatchObject({ status: 202, body: { status: 'pending' } });
  await walk.suffer();
  await walk.recover();
  for (const id of [underWay, textOf(taken, 'id')]) await untilStatus(client, id, 'settled');
});

/** Makes writes fail as with a full disk, as long as the replication slot keeps its WAL. */
const fullDisk = `
  create function refuse_full_disk() returns trigger language plpgsql as $$
  begin
    if exists (select from pg_replication_slots where slot_name = 'left_behind') then
      raise exception 'could not extend file "base/16384/16385": No space left on device'
        using errcode = 'disk_full', hint = 'Check free disk space.';
    end if;
    return null;
  end $$;
  create trigger refuse_full_disk before insert on payouts
    for each statement execute function refuse_full_disk();
  create trigger refuse_full_disk before insert on events
    for each statement execute function refuse_full_disk();
  select pg_create_physical_replication_slot('left_behind', true)`;

it('The disk is full', async () => {
  const { client, item, pay } = customer;
  const walk = await runbook('The disk is full', { SLOT: /left_behind/ });
  const underWay = await pay('simulate: delay 3s');
  await untilStatus(client, underWay, 'sent');
  await database.unsafe(fullDisk);
  const form = item('While the disk is full');
  const idempotencyKey = 'disk-full';
  const refused = await client('POST /v1/payouts', { form, idempotencyKey });
  expect(refused).toMatchObject({ status: 503, body: { code: 'service_unavailable' } });
  await walk.suffer();
  expect((await client(`GET /v1/payouts/${underWay}`)).body).toMatchObject({ status: 'sent' });
  await walk.recover();
  const taken = await client('POST /v1/payouts', { form, idempotencyKey });
  for (const id of [underWay, textOf(taken, 'id')]) await untilStatus(client, id, 'settled');
});

it('The database fails over', async () => {
  const { client, item, pay } = customer;
  const { databaseUrl: STANDBY_URL } = await startStandby();
  const own = { ...shell, run: (command: string) => shell.run(command, { STANDBY_URL }) };
  const walk = await runbook('The database fails over', {}, own);
  const underWay = await pay('simulate: delay 2s');
  await untilStatus(client, underWay, 'sent');
  await parts.crash('postgres');
  primaryUrl = STANDBY_URL;
  const form = item('While there is no primary');
  const idempotencyKey = 'failover';
  await eventually('a payout is refused with 503', limitMs, async () => {
    const { status } = await client('POST /v1/payouts', { form, idempotencyKey });
    return status === 503 ? true : undefined;
  });
  await walk.suffer();
  await walk.recover();
  const taken = await client('POST /v1/payouts', { form, idempotencyKey });
  for (const id of [underWay, textOf(taken, 'id')]) await untilStatus(client, id, 'settled');
});

/** Starts a synchronous standby with everything that the primary has committed. */
async function startStandby(): Promise<PostgresPart> {
  const { port: primaryPort, username, password } = new URL(parts.ownerUrl);
  const home = join(parts.directory, 'standby');
  const cluster = join(home, 'cluster');
  await mkdir(home);
  await copyCluster(database, join(parts.directory, 'postgres', 'cluster'), cluster);
  await mkdir(join(cluster, 'pg_wal'), { mode: 0o700 });
  await copyFile(join(parts.directory, 'postgres', 'password'), join(home, 'password'));
  await writeFile(join(cluster, 'standby.signal'), '');
  const from = `host=127.0.0.1 port=${primaryPort} user=${username} password=${password}`;
  const settings = join(cluster, 'postgresql.auto.conf');
  await appendFile(settings, `primary_conninfo = '${from}'\n`);
  await giveToOwner(cluster);
  const started = await startPostgres({
    ...{ dataDir: home, port: await freePort(), database: 'corridor' },
    isStandby: true,
    onLog: () => undefined,
  });
  standby = started;
  await database`alter system set synchronous_standby_names = '*'`;
  await database`select pg_reload_conf()`;
  await eventually('the standby is synchronous', limitMs, async () => {
    const found = await database`select from pg_stat_replication where sync_state = 'sync'`;
    return found.length === 1 ? true : undefined;
  });
  database = connectDatabase({
    ...{ url: started.databaseUrl, poolSize: 5, applicationName: 'test' },
  });
  return started;
}
