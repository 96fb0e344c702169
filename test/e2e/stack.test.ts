import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { appendFile, chmod } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { connectDatabase } from '../../src/db/client.js';
import { listBalanceBreaks, sumPostings } from '../../src/db/ledger.js';
import { eventually } from '../assertions/eventually.js';
import { openMetricsFaults } from '../assertions/openMetrics.js';
import { metricsNamedIn } from '../assertions/promql.js';
import { startReceiver } from '../fakes/receiver.js';
import { type ApiClient, textOf, untilStatus } from '../fixtures/client.js';
import { alerts, dashboardQueries, onlyAfterFailures } from '../fixtures/monitoring.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { crash, createStackHome, type RunningStack, type StackHome } from '../servers/stackHome.js';

/** Creates a separate data folder for a test. */
async function openHome(): Promise<StackHome> {
  const home = await createStackHome();
  onTestFinished(() => home.remove());
  return home;
}

/** Stops the stack as Ctrl-C does. */
async function interrupt({ part }: RunningStack): Promise<number | null> {
  process.kill(part.pid, 'SIGINT');
  return (await part.exited).code;
}

/** Changes the data as if an older release with an older rate table had written it. */
async function pretendOlderRates(url: string): Promise<void> {
  const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
  await database`update rate_provider set provider = 'corridor-reference-2025-11-20'`;
  await database.end({ timeout: 5 });
}

type Request = Readonly<Record<string, string>>;

/** Creates a beneficiary and returns the parameters of a payout to it. */
async function payoutRequest(client: ApiClient, reference: string): Promise<Request> {
  const payee = await client('POST /v1/beneficiaries', { form: beneficiary });
  return {
    source_currency: 'USD',
    amount: '12500',
    beneficiary: textOf(payee, 'id'),
    reference,
  };
}

function sendPayout(client: ApiClient, form: Request, idempotencyKey: string) {
  return client('POST /v1/payouts', { form, idempotencyKey });
}

/** The permissions of a folder and its content, except within PostgreSQL's cluster. */
function modesUnder(directory: string) {
  const paths = ['', ...readdirSync(directory, { recursive: true, encoding: 'utf8' })];
  return paths
    .filter((path) => !path.startsWith(join('postgres', 'cluster')))
    .map((path) => ({ path, mode: statSync(join(directory, path)).mode & 0o777 }));
}

const worker = fileURLToPath(new URL('../../dist/src/worker/main.js', import.meta.url));

/** The initial environment of a process (Linux). */
function environmentOf(pid: number): Record<string, string> {
  const pairs = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
  return Object.fromEntries(
    pairs.flatMap((pair) => {
      const end = pair.indexOf('=');
      return end < 0 ? [] : [[pair.slice(0, end), pair.slice(end + 1)]];
    }),
  );
}

/** Whether this kernel schedules sessions before processes (sched(7), autogroup). */
const hasSessions = existsSync('/proc/self/autogroup');

/** The nice values of a process and of its session: 0 is normal priority (Linux). */
function priorityOf(pid: number | undefined) {
  const status = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // Counted after the name in parentheses, the second field, the nineteenth field has index 16.
  const [, fields = ''] = /\) (.*)$/s.exec(status) ?? [];
  const session = hasSessions ? readFileSync(`/proc/${pid}/autogroup`, 'utf8') : ' nice 0';
  return {
    process: Number(fields.split(' ')[16]),
    session: Number(/ nice (-?\d+)/.exec(session)?.[1]),
  };
}

/** A variable in the initial environment of a process, as the kernel keeps it (Linux). */
function settingOf(pid: number, name: string): string {
  const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
  const setting = environment.find((text) => text.startsWith(`${name}=`));
  if (setting === undefined) throw new Error(`Process ${pid} has no ${name}.`);
  return setting.slice(name.length + 1);
}

describe('a running stack', () => {
  let home: StackHome;
  let running: RunningStack;

  /** The metrics URL of a worker, with the port that it has logged. */
  function metricsUrlOf(name: string): string {
    const log = readFileSync(join(home.directory, 'logs', `${name}.log`), 'utf8');
    const [, url = ''] = /"ready":"(http[^"]+)"/.exec(log) ?? [];
    return `${url}/metrics`;
  }

  const metricsOf = async (name: string) => (await fetch(metricsUrlOf(name))).text();

  beforeAll(async () => {
    home = await createStackHome();
    // Others may enter the folder until the stack takes it over.
    await chmod(home.directory, 0o755);
    running = await home.start();
  });
  afterAll(() => home?.remove());

  it('describes itself in stack.json, and everything it names answers', async () => {
    const { description, output } = running;
    expect(output()).toContain('Corridor is ready.');
    for (const url of [
      `${description.api_url}/livez`,
      description.metrics_url.replace('/metrics', '/readyz'),
      description.metrics_url,
      description.temporal_ui_url,
      `${description.sandbox_bank_url}/health`,
    ]) {
      const response = await fetch(url);
      expect(`${url} ${response.status}`).toBe(`${url} 200`);
    }
    const pids = home.processes().map(({ pid }) => pid);
    expect(pids).toEqual(expect.arrayContaining(Object.values(description.pids)));
  });

  it('serves its metrics as OpenMetrics when the client prefers that format', async () => {
    const urls = [running.description.metrics_url, metricsUrlOf('worker')];
    // The Accept header of Prometheus 3.
    const accept =
      'application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3';
    for (const url of urls) {
      const [open, plain] = await Promise.all([fetch(url, { headers: { accept } }), fetch(url)]);
      const types = [open, plain].map(({ headers }) => headers.get('content-type'));
      expect(types).toEqual([
        'application/openmetrics-text; version=1.0.0; charset=utf-8',
        'text/plain; version=0.0.4; charset=utf-8',
      ]);
      const text = await open.text();
      expect(openMetricsFaults(text)).toEqual([]);
      expect(text).toMatch(/^# TYPE (temporal_request|corridor_wake_failures) counter$/m);
      expect(await plain.text()).not.toContain('# EOF');
    }
  });

  it('gives each process the secrets it uses, and no other', async () => {
    const { pids } = running.description;
    const secrets: Record<string, string> = JSON.parse(
      readFileSync(join(home.directory, 'secrets.json'), 'utf8'),
    );
    const knownTo = (part: keyof typeof pids) => {
      const environment = readFileSync(`/proc/${pids[part]}/environ`, 'utf8');
      return Object.keys(secrets).filter((name) => environment.includes(secrets[name] ?? ''));
    };
    expect(knownTo('api')).toEqual([
      ...['callbackSecret', 'fingerprintSecret', 'masterKey', 'webhookSigningKey'],
    ]);
    expect(knownTo('worker')).toEqual(['bankToken', 'masterKey', 'webhookSigningKey']);
    expect(knownTo('batch-worker')).toEqual(['bankToken', 'masterKey', 'webhookSigningKey']);
    expect(knownTo('sandbox-bank')).toEqual(['bankToken', 'callbackSecret']);
  });

  it('runs the batch worker at a lower priority than everything else', async () => {
    const { pids } = running.description;
    const batches = priorityOf(pids['batch-worker']);
    const singles = priorityOf(pids['worker']);
    expect(batches.process).toBeGreaterThan(singles.process);
    expect(batches.session).toBe(hasSessions ? batches.process : 0);
    expect(singles.session).toBeLessThanOrEqual(singles.process);
  });

  it('starts the batch worker at normal priority, and lowers it afterwards', async () => {
    const { pids } = running.description;
    const database = createServer().listen(0, '127.0.0.1');
    await once(database, 'listening');
    const address = database.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const starting = spawn(process.execPath, [worker, '--lane', 'batch'], {
      // The worker waits for a database that never responds.
      env: {
        ...environmentOf(pids['batch-worker']),
        DATABASE_URL: `postgres://127.0.0.1:${port}/x`,
      },
      detached: true,
      stdio: 'ignore',
    });
    try {
      await once(database, 'connection');
      expect(priorityOf(starting.pid)).toEqual(priorityOf(pids.worker));
    } finally {
      starting.kill('SIGKILL');
      database.close();
    }
  });

  it('does the main job over HTTP, to a webhook that an independent library can verify', async () => {
    const { client, description } = running;
    const receiver = await startReceiver();
    try {
      const endpoint = await client('POST /v1/webhook_endpoints', {
        form: { url: receiver.url, 'events[]': 'payout.settled' },
      });
      const quote = await client('POST /v1/quotes', {
        form: { source_currency: 'USD', destination_currency: 'EUR', amount: '125000' },
      });
      const payee = await client('POST /v1/beneficiaries', { form: beneficiary });
      const payout = await client('POST /v1/payouts', {
        form: { quote: textOf(quote, 'id'), beneficiary: textOf(payee, 'id') },
        idempotencyKey: 'invoice-17',
      });
      expect(payout.status).toBe(201);
      const id = textOf(payout, 'id');
      const webhook = await receiver.next(({ body }) => body.includes(id));
      const event = new Webhook(textOf(endpoint, 'secret')).verify(webhook.body, webhook.headers);
      expect(event).toMatchObject({
        type: 'payout.settled',
        data: {
          ...{ id, received: quote.body['receive_amount'] },
          ...{ rate: quote.body['rate'], rate_source: quote.body['rate_source'] },
        },
      });
      const balances = await client('GET /v1/balances');
      expect(balances.body['data']).toContainEqual(
        expect.objectContaining({ currency: 'USD', available: '998750.00', held: '0.00' }),
      );
    } finally {
      await receiver.close();
    }
    await expectBalancedLedger(description.database_url);
  });

  it('exports every metric that an alert or the dashboard queries', async () => {
    const { client, description } = running;
    const request = await payoutRequest(client, 'simulate: wrong amount');
    const id = textOf(await sendPayout(client, request, 'invoice-18'), 'id');
    const log = join(home.directory, 'logs', 'worker.log');
    const line = await eventually('the log line about the parked payout', 20_000, async () => {
      const lines = readFileSync(log, 'utf8').split('\n');
      return lines.find((text) => text.includes('needs an operator'));
    });
    const account = textOf(await client('GET /v1/account'), 'id');
    const logged = { level: 'warn', account, payout: id, reason: 'amount_mismatch' };
    expect(JSON.parse(line)).toMatchObject(logged);

    // Metrics are cached for ten seconds.
    const page = await eventually('the metric of the parked payout', 30_000, async () => {
      const text = await (await fetch(description.metrics_url)).text();
      return /corridor_payouts_parked\{reason="amount_mismatch",.*\} 1$/m.test(text)
        ? text
        : undefined;
    });
    const pages = [page, ...(await Promise.all(['worker', 'batch-worker'].map(metricsOf)))];
    const types = pages.flatMap((text) => [...text.matchAll(/^# TYPE (\S+) /gm)]);
    const exported = new Set([...types.map(([, name]) => name), ...onlyAfterFailures]);
    const queried = metricsNamedIn([...alerts.map(({ expr }) => expr), ...dashboardQueries]);
    expect([...queried].filter((name) => !exported.has(name))).toEqual([]);
    // No label contains an ID.
    expect(pages.join('\n')).not.toMatch(/"(acc|po|bat|we|bnf|evt)_[0-9a-z]{8,}/);
  });

  it('passes `corridor doctor`, and rehearses a case that needs an operator', async () => {
    const corridor = (...args: readonly string[]) =>
      home.runBare(...args, '--data', home.directory);
    const examined = await corridor('doctor');
    expect(examined).toMatchObject({ code: 0, stderr: '' });
    const names = examined.stdout.split('\n').map((line) => line.slice(0, 18).trim());
    expect(names).toEqual(
      expect.arrayContaining(['database', 'roles', 'schedules', 'temporal clock', 'bank', 'disk']),
    );
    expect(examined.stdout).not.toContain('FAILS');

    const rehearsed = await corridor('rehearse', 'amount_mismatch');
    const id = /po_\w+/.exec(rehearsed.stdout)?.[0] ?? '';
    await eventually('the payout is parked', 20_000, async () => {
      const { stdout } = await corridor('payouts', 'list', '--json');
      return stdout.includes(id) ? true : undefined;
    });
    const shown = await corridor('payouts', 'show', id);
    expect(shown.stdout).toContain(`corridor payouts settle ${id} --evidence TEXT --reason TEXT`);
    expect(shown.stdout).toContain('The rail settled 1,066.55 EUR; 1,066.54 EUR was sent.');
    expect(shown.stdout).toContain(`/namespaces/default/workflows/${id}`);
    const refused = await corridor('payouts', 'fail', id, '--reason', 'rehearsed');
    expect(refused).toMatchObject({ code: 1, stdout: expect.stringContaining('1,066.55 EUR') });
    const evidence = ['--evidence', 'the bank said so', '--reason', 'rehearsed'];
    // The payout that the metrics test parked is stuck too.
    const { stdout: parked } = await corridor('payouts', 'list', '--json');
    for (const each of new Set(parked.match(/\bpo_\w+/g))) {
      expect(await corridor('payouts', 'settle', each, ...evidence)).toMatchObject({ code: 0 });
    }
    expect((await corridor('payouts', 'list')).stdout).toBe('No payout is stuck.\n');
    expect(await corridor('rehearse', 'nothing')).toMatchObject({ code: 2 });
  });

  it('keeps its data private to its user, but accessible to the user that runs PostgreSQL', async () => {
    const { client } = running;
    await sendPayout(client, await payoutRequest(client, 'Invoice 17'), 'invoice-17-again');
    const modes = modesUnder(home.directory);
    expect(modes.filter(({ mode }) => (mode & 0o077) !== 0)).toEqual([]);
    expect(modes.map(({ path }) => path)).toEqual(
      expect.arrayContaining(['', 'bank-journal.jsonl', 'logs', 'logs/api.log', 'temporal.sqlite']),
    );
    // With a capability that opens every file, PostgreSQL would not need the folder's permissions.
    const log = readFileSync(join(home.directory, 'logs', 'postgres.log'), 'utf8');
    expect(log).not.toContain('CAP_DAC_OVERRIDE');
  });

  it('gives its processes logins that cannot edit balances or disable triggers', async () => {
    const { description } = running;
    for (const name of ['api', 'worker', 'batch-worker'] as const) {
      const url = settingOf(description.pids[name], 'DATABASE_URL');
      const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
      try {
        expect(await listBalanceBreaks(database)).toEqual([]);
        for (const statement of [
          'update ledger_balances set amount_minor = amount_minor + 1',
          'alter table ledger_entries disable trigger all',
          'alter table ledger_balances disable trigger all',
          'update payout_moves set to_status = from_status',
          'set session_replication_role = replica',
        ]) {
          const tried = database.unsafe(statement);
          await expect(tried, `${name}: ${statement}`).rejects.toMatchObject({ code: '42501' });
        }
      } finally {
        await database.end({ timeout: 5 });
      }
    }
  });

  it('refuses a data directory that another stack is using, and does not disturb that stack', async () => {
    const { client, description } = running;
    const second = await home.run('start');
    expect(second.code).toBe(1);
    expect(second.stderr).toContain('The data directory is in use by Corridor');
    expect(second.stderr).toContain(`process id ${description.pids.supervisor}`);
    expect(second.stderr).toContain('--data');
    expect(second.stderr).not.toContain('    at ');
    expect((await client('GET /v1/balances')).status).toBe(200);
    expect(home.hasDescription()).toBe(true);
  });
});

describe('a stack with a process that dies', () => {
  let home: StackHome;

  beforeAll(async () => {
    home = await createStackHome();
  });
  // Each test starts on the data of the one before, unless that one failed.
  afterEach(async ({ task }) => {
    if (task.result?.state !== 'fail') return;
    await home.remove();
    home = await createStackHome();
  });
  afterAll(() => home?.remove());

  it.each(['api', 'worker', 'batch-worker', 'sandbox-bank', 'temporal', 'postgres'] as const)(
    'stops with exit code 1 and the last output of %s when that is killed',
    async (name) => {
      const { part, description, output } = await home.start();
      crash(description.pids[name]);
      expect((await part.exited).code).toBe(1);
      expect(output()).toMatch(
        new RegExp(`${name} has exited \\(SIGKILL\\)\\. Its last output:\\n  \\S`),
      );
      expect(home.processes()).toEqual([]);
      expect(home.hasDescription()).toBe(false);
    },
  );
});

describe('a stack that is restarted on its data', () => {
  let home: StackHome;
  let running: RunningStack | undefined;

  beforeAll(async () => {
    home = await createStackHome();
  });
  // Each test continues with the stack of the one before, unless that one failed.
  afterEach(async ({ task }) => {
    if (task.result?.state !== 'fail') return;
    running = undefined;
    await home.remove();
    home = await createStackHome();
  });
  afterAll(() => home?.remove());

  const goOn = async () => {
    running ??= await home.start();
    return running;
  };

  it('stops every process on Ctrl-C, and has all its data after the restart', async () => {
    const first = await goOn();
    const request = await payoutRequest(first.client, 'Rent');
    const payout = await sendPayout(first.client, request, 'rent-2026-11');
    expect(payout.status).toBe(201);
    const id = textOf(payout, 'id');
    const settled = await untilStatus(first.client, id, 'settled');
    await pretendOlderRates(first.description.database_url);
    expect(await interrupt(first)).toBe(0);
    expect(home.processes()).toEqual([]);
    expect(home.hasDescription()).toBe(false);
    expect(await home.fatalLines()).toEqual([]);

    const second = await home.start();
    running = second;
    const terms = { source_currency: 'USD', destination_currency: 'EUR', amount: '125000' };
    expect((await second.client('POST /v1/quotes', { form: terms })).status).toBe(201);
    expect(second.description.api_key).toBe(first.description.api_key);
    expect((await second.client(`GET /v1/payouts/${id}`)).body).toEqual(settled.body);
    const repeated = await sendPayout(second.client, request, 'rent-2026-11');
    expect(repeated.status).toBe(201);
    expect(repeated.headers.get('idempotent-replayed')).toBe('true');
    expect(repeated.body).toEqual(settled.body);
    expect(await home.transfers()).toEqual([id]);
  });

  it('ends the processes of a killed stack, and continues with its data', async () => {
    const first = await goOn();
    const sent = await home.transfers();
    const request = await payoutRequest(first.client, 'Rent');
    const id = textOf(await sendPayout(first.client, request, 'rent-2026-12'), 'id');
    const left = home.processes().filter(({ pid }) => pid !== first.part.pid);
    crash(first.part.pid);
    await first.part.exited;

    const second = await home.start();
    running = second;
    const pids = home.processes().map(({ pid }) => pid);
    expect(pids.filter((pid) => left.some((old) => old.pid === pid))).toEqual([]);
    await untilStatus(second.client, id, 'settled');
    expect(textOf(await sendPayout(second.client, request, 'rent-2026-12'), 'id')).toBe(id);
    expect(await home.transfers()).toEqual([...sent, id]);
  });

  it('pays once when every process is killed at once with a payout in flight', async () => {
    const first = await goOn();
    const sent = await home.transfers();
    const request = await payoutRequest(first.client, 'simulate: delay 2s');
    const id = textOf(await sendPayout(first.client, request, 'rent-2027-01'), 'id');
    for (const pid of Object.values(first.description.pids)) crash(pid);
    await first.part.exited;

    const second = await home.start();
    running = second;
    expect(textOf(await sendPayout(second.client, request, 'rent-2027-01'), 'id')).toBe(id);
    await untilStatus(second.client, id, 'settled');
    expect(await home.transfers()).toEqual([...sent, id]);
    await expectBalancedLedger(second.description.database_url);
  });

  it('stops cleanly after all that, and starts empty with --reset', async () => {
    const first = await goOn();
    expect(await interrupt(first)).toBe(0);
    expect(home.processes()).toEqual([]);

    const second = await home.start('--reset');
    expect(second.description.api_key).not.toBe(first.description.api_key);
    expect((await second.client('GET /v1/payouts')).body['data'] ?? []).toEqual([]);
    expect(await home.transfers()).toEqual([]);
    const stranger = await fetch(`${second.description.api_url}/v1/balances`, {
      headers: { authorization: `Bearer ${first.description.api_key}` },
    });
    expect(stranger.status).toBe(401);
  });
});

describe('corridor start', () => {
  it('leaves nothing running when one part does not start', async () => {
    const home = await openHome();
    await appendFile(join(home.directory, 'bank-journal.jsonl'), 'no line of a journal\n');
    const { code, stderr } = await home.run('start');
    expect(code).toBe(1);
    expect(stderr).toContain('sandbox-bank ended (code 1) at its start');
    expect(stderr).toContain('is not a valid line of the bank');
    expect(home.processes()).toEqual([]);
  });
});

describe('corridor reports invalid arguments', () => {
  it.each([
    ['an unknown flag', ['start', '--prot', '1'], '--prot'],
    [
      'a port that is not a number',
      ['start', '--api-port', 'http'],
      '--api-port expects a port number',
    ],
    ['a port that is too large', ['start', '--bank-port', '65536'], '--bank-port expects a port'],
    ['an unknown command', ['strat'], 'There is no command "strat"'],
    ['no command', [], 'A command is missing'],
    ['an unknown command with --help', ['nonsense', '--help'], 'no command "nonsense"'],
    ['a mistyped subcommand', ['payouts', 'lst'], 'Did you mean payouts list?'],
    [
      'a flag of another command',
      ['payouts', 'show', 'po_1', '--until', 'x'],
      'corridor payouts show takes no --until',
    ],
    [
      'a flag that a preview would not use',
      ['terms', 'preview', 'EUR', '--spread', '900'],
      'corridor terms preview takes no --spread',
    ],
    ['an extra argument', ['payouts', 'list', 'po_1'], 'takes no argument "po_1"'],
    ['a group', ['webhooks'], '"webhooks" needs a subcommand: list.', 'corridor help webhooks'],
    [
      'help on an unknown command',
      ['help', 'nope'],
      'There is no command "nope".',
      'corridor help',
    ],
  ])('%s: exit code 2', async (_case, args, message, topic = 'corridor help') => {
    const home = await openHome();
    const { code, stderr } = await home.runBare(...args);
    expect(code).toBe(2);
    const [fault, help, ...more] = stderr.split('\n');
    expect(fault).toContain(message);
    expect(help?.startsWith(`See: ${topic}`)).toBe(true);
    expect(help?.endsWith('help help')).toBe(false);
    expect(more).toEqual(['']);
  });

  it('no running stack: exit code 3, and what to do', async () => {
    const home = await openHome();
    const { code, stderr } = await home.runBare('payouts', 'list');
    expect(code).toBe(3);
    expect(stderr).toMatch(/^No stack runs in \.corridor, and DATABASE_URL is not set\. .*\n$/);
    expect(await home.runBare('help', 'payouts', 'fail')).toMatchObject({ code: 0, stderr: '' });
    expect((await home.runBare('--version')).stdout).toMatch(/^corridor \d+\.\d+\.\d+\n$/);
  });

  it('a port in use: exit code 1, before anything is started', async () => {
    const home = await openHome();
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    try {
      const { code, stdout, stderr } = await home.run('start', '--api-port', String(port));
      expect(code).toBe(1);
      expect(stderr).toContain(`Port ${port} of 127.0.0.1 cannot be used`);
      expect(stderr).toContain('--api-port 0 for any free port');
      expect(stderr).not.toContain('    at ');
      expect(stdout).not.toContain('is up');
      expect(home.processes()).toEqual([]);
    } finally {
      server.close();
    }
  });
});

async function expectBalancedLedger(url: string): Promise<void> {
  const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
  try {
    const sums = await sumPostings(database);
    expect(sums.map(({ currency, sumMinor }) => `${currency} ${sumMinor}`)).toEqual([
      'EUR 0',
      'GBP 0',
      'USD 0',
    ]);
  } finally {
    await database.end({ timeout: 5 });
  }
}
