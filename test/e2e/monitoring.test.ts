import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { choosePort } from '../../sandbox/stack/ports.js';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf } from '../fixtures/client.js';
import { alerts, dashboardQueries } from '../fixtures/monitoring.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { findPrometheus } from '../servers/prometheus.js';
import { createStackHome, type RunningStack, type StackHome } from '../servers/stackHome.js';

const rulesFile = fileURLToPath(new URL('../../deploy/prometheus/alerts.yml', import.meta.url));

const items = 1_000;

const rulesAnswer = z.object({
  data: z.object({
    groups: z.array(
      z.object({
        rules: z.array(
          z.object({
            name: z.string(),
            health: z.string(),
            state: z.string(),
            lastError: z.string().default(''),
          }),
        ),
      }),
    ),
  }),
});
const queryAnswer = z.object({
  status: z.literal('success'),
  data: z.object({ result: z.array(z.unknown()) }),
});

let home: StackHome;
let running: RunningStack;
let directory: string;
let prometheus: Part | undefined;
let receiver: Receiver | undefined;
let address: string;

beforeAll(async () => {
  home = await createStackHome();
  running = await home.start();
  directory = await mkdtemp(join(tmpdir(), 'corridor-prometheus-'));
  address = `127.0.0.1:${await choosePort(0, 'none')}`;
  prometheus = await startPrometheus();
});
afterAll(async () => {
  await prometheus?.stop();
  await receiver?.close();
  await running.part.stop();
  await home.remove();
  await rm(directory, { recursive: true, force: true });
});

/** The host and port at which a part of the stack serves its metrics. */
function metricsHostOf(part: 'api' | 'worker' | 'batch-worker'): string {
  if (part === 'api') return new URL(running.description.metrics_url).host;
  const log = readFileSync(join(home.directory, 'logs', `${part}.log`), 'utf8');
  return new URL(/"ready":"(http[^"]+)"/.exec(log)?.[1] ?? '').host;
}

/** Starts a Prometheus with the deployed rules and the jobs of the deployed configuration, at a faster pace. */
async function startPrometheus(): Promise<Part> {
  const jobs = (['api', 'worker', 'batch-worker'] as const).map((part) => ({
    job_name: `corridor-${part}`,
    static_configs: [{ targets: [metricsHostOf(part)] }],
  }));
  const file = join(directory, 'prometheus.yml');
  const config = {
    global: { scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: [rulesFile],
    scrape_configs: jobs,
  };
  // JSON is YAML too.
  await writeFile(file, JSON.stringify(config));
  return startProcess({
    name: 'prometheus',
    command: await findPrometheus('prometheus'),
    args: [
      `--config.file=${file}`,
      `--storage.tsdb.path=${join(directory, 'data')}`,
      `--web.listen-address=${address}`,
    ],
    env: process.env,
    ready: {
      probe: () =>
        fetch(`http://${address}/-/ready`).then(
          ({ ok }) => ok,
          () => false,
        ),
    },
    readyTimeoutMs: 30_000,
    stopTimeoutMs: 30_000,
    onLog: () => undefined,
  });
}

async function readApi(path: string): Promise<unknown> {
  const response = await fetch(`http://${address}/api/v1/${path}`);
  return response.json();
}

/** The number of time series that a query returns, for the last five minutes as a panel asks. */
async function seriesOf(query: string): Promise<number> {
  const end = Date.now() / 1000;
  const range = new URLSearchParams({ query, start: `${end - 300}`, end: `${end}`, step: '5' });
  const answer = await readApi(`query_range?${range.toString()}`);
  return queryAnswer.parse(answer, { error: () => `${query}: ${JSON.stringify(answer)}` }).data
    .result.length;
}

/** Metrics that a short and healthy run does not set. */
const empty = [
  ...['corridor_unreadable_callbacks_total', 'corridor_rates_waiting', 'corridor_payouts_parked'],
  ...['corridor_webhook_backlog', 'corridor_ledger_drift_minor', 'corridor_books_compared'],
];

async function queriesWithoutData(): Promise<readonly string[]> {
  const found: string[] = [];
  for (const query of dashboardQueries) if ((await seriesOf(query)) === 0) found.push(query);
  return found.filter((query) => !empty.some((name) => query.includes(name)));
}

describe('Prometheus on a running stack', () => {
  it('answers every query of the dashboard while a batch is paid', async () => {
    const { client } = running;
    const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
    const payouts = Array.from({ length: items }, (_, index) => ({
      ...{ source_currency: 'USD', amount: 1000, beneficiary: payee },
      // One stays open for longer than a reading of the backlog is reused, so that one shows the batch.
      reference: index === 0 ? 'simulate: delay 25s' : `item ${index}`,
    }));
    const batch = textOf(await client('POST /v1/batches', { json: { payouts } }), 'id');
    receiver = await startReceiver();
    const endpoint = { url: receiver.url, 'events[]': 'payout.settled' };
    await client('POST /v1/webhook_endpoints', { form: endpoint });
    const single = { source_currency: 'USD', amount: '1000', beneficiary: payee };
    await client('POST /v1/payouts', { form: single, idempotencyKey: 'monitored' });
    await eventually('the batch is completed', 120_000, async () => {
      const answer = await client(`GET /v1/batches/${batch}`);
      // Every query is answered at every moment of the batch.
      for (const query of dashboardQueries) await seriesOf(query);
      // Prometheus reads the parts once a second; asked more often, it answers the same.
      return textOf(answer, 'status') === 'completed' || delay(1_000);
    });
    await expect.poll(queriesWithoutData, { timeout: 60_000 }).toEqual([]);
  });

  it('evaluates every alert without an error, and no alert fires', async () => {
    const rules = rulesAnswer
      .parse(await readApi('rules?type=alert'))
      .data.groups.flatMap((group) => group.rules);
    expect(new Set(rules.map(({ name }) => name))).toEqual(
      new Set(alerts.map(({ alert }) => alert)),
    );
    const unhealthy = rules.filter(({ health, state }) => health !== 'ok' || state === 'firing');
    expect(unhealthy).toEqual([]);
  });
});
