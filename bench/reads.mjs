// Measures the throughput of one read and one write of the API against a bare Koa app that runs the same
// statements, in the same run. Run it after the build.
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';

// Set before the stack reads them, because the rate limits are not to be measured.
process.env.RATE_LIMIT_PER_SECOND = '99999';
process.env.RATE_LIMIT_BURST = '99999';
process.env.IN_FLIGHT_LIMIT = '9999';
const { withBench } = await import('./batch/bench.mjs');
const { watchProcesses } = await import('./batch/processes.mjs');
const { startProcess } = await import('../dist/sandbox/stack/process.js');

const { values } = parseArgs({
  options: {
    connections: { type: 'string', default: '16' },
    seconds: { type: 'string', default: '1.5' },
    rounds: { type: 'string', default: '15' },
    data: { type: 'string', default: '.corridor/bench' },
  },
});
const connections = Number(values.connections);

/** Sends requests back to back on every connection for `seconds`. Returns the time each took. */
async function drive(pool, request, seconds) {
  const endMs = performance.now() + seconds * 1000;
  const taken = [];
  const lane = async () => {
    while (performance.now() < endMs) {
      const startMs = performance.now();
      const { statusCode, body } = await pool.request(request);
      await body.dump();
      if (statusCode >= 300) throw new Error(`${request.method} ${request.path}: ${statusCode}`);
      taken.push(performance.now() - startMs);
    }
  };
  await Promise.all(Array.from({ length: connections }, lane));
  return taken;
}

const quantile = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
const median = (numbers) =>
  quantile(
    numbers.sort((a, b) => a - b),
    0.5,
  );

async function compare(name, request, targets) {
  for (const { pool } of targets) await drive(pool, request(targets[0]), 2);
  const rounds = targets.map(() => ({ perSecond: [], taken: [], processorMs: 0 }));
  for (let round = 0; round < Number(values.rounds); round += 1) {
    for (const [index, target] of targets.entries()) {
      const watched = watchProcesses({ [target.name]: target.pid });
      const startMs = performance.now();
      const taken = await drive(target.pool, request(target), Number(values.seconds));
      rounds[index].perSecond.push((taken.length * 1000) / (performance.now() - startMs));
      rounds[index].processorMs += watched.msAPayout(1)[target.name];
      rounds[index].taken.push(...taken);
    }
  }
  const ours = median(rounds[0].perSecond);
  for (const [index, { perSecond, taken, processorMs }] of rounds.entries()) {
    const sorted = taken.sort((a, b) => a - b);
    const [p50, p99] = [0.5, 0.99].map((share) => quantile(sorted, share).toFixed(1));
    const rate = median(perSecond);
    const ratio = index === 0 ? '' : `, ours is ${((100 * ours) / rate).toFixed(0)} % of it`;
    console.log(
      `${name}, ${targets[index].name}: ${rate.toFixed(0)} a second, p50 ${p50} ms, p99 ${p99} ms, ` +
        `${(processorMs / taken.length).toFixed(2)} ms of its processor${ratio}`,
    );
  }
}

await withBench(values.data, async ({ stack, database }) => {
  const { api_url: apiUrl, api_key: apiKey, pids } = stack.description;
  const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' };
  const api = new Pool(apiUrl, { connections });
  const create = async (path, params) => {
    const { body } = await api.request({
      path,
      method: 'POST',
      headers,
      body: JSON.stringify(params),
    });
    return (await body.json()).id;
  };
  const beneficiary = await create('/v1/beneficiaries', {
    ...{ type: 'individual', name: 'Ada Lovelace', country: 'DE', currency: 'EUR' },
    iban: 'DE89370400440532013000',
  });
  const payout = await create('/v1/payouts', {
    beneficiary,
    source_currency: 'USD',
    amount: 5_000,
  });
  const [{ accountId }] = await database`select account_id from payouts where id = ${payout}`;
  const bare = await startProcess({
    name: 'bare',
    command: process.execPath,
    args: [fileURLToPath(new URL('./bareApi.mjs', import.meta.url))],
    env: {
      ...process.env,
      DATABASE_URL: stack.description.database_url,
      ACCOUNT_ID: accountId,
      POOL_SIZE: '16',
    },
    ipc: true,
    ready: { line: (line) => /"ready":"(http[^"]+)"/.exec(line)?.[1] },
    readyTimeoutMs: 20_000,
    onLog: () => undefined,
  });
  const bareApi = { pid: bare.pid, pool: new Pool(bare.announced, { connections }) };
  const targets = [
    { name: 'ours', pid: pids.api, pool: api, headers },
    { name: 'bare Koa with the same SQL', ...bareApi, headers },
    {
      name: 'bare Koa without the look-up of the key',
      ...bareApi,
      headers: { ...headers, 'x-without-key': 'yes' },
    },
  ];
  const quote = JSON.stringify({
    source_currency: 'USD',
    destination_currency: 'EUR',
    amount: 5_000,
  });
  try {
    await compare(
      'GET /v1/payouts/:id',
      (to) => ({ method: 'GET', path: `/v1/payouts/${payout}`, headers: to.headers }),
      targets,
    );
    await compare(
      'POST /v1/quotes',
      (to) => ({ method: 'POST', path: '/v1/quotes', headers: to.headers, body: quote }),
      targets,
    );
  } finally {
    await Promise.all([api.close(), bareApi.pool.close()]);
    await bare.stop();
  }
});
