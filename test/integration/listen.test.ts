import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Webhook } from 'standardwebhooks';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
} from 'vitest';
import { freePort } from '../../sandbox/stack/ports.js';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { webhookExample } from '../../src/contract/webhookExamples.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import { startReceiver } from '../fakes/receiver.js';
import { rememberSecret } from '../fakes/webhookSecrets.js';
import { startApiProcess } from '../servers/apiProcess.js';
import { createTestAccount, type TestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const main = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
let system: TestSystem;
let caller: TestAccount;
let folder: string;

beforeAll(async () => {
  system = await startSystem({ startsWorker: false });
});
beforeEach(async () => {
  caller = await createTestAccount(system.database);
  folder = await mkdtemp(join(tmpdir(), 'corridor-listen-'));
});
afterEach(() => rm(folder, { recursive: true }));
afterAll(() => system.stop());

/** Writes an event of the account, as a worker does. */
async function happen() {
  const { data } = webhookExample('batch.completed', '2026-11-15');
  const facts = { ...Object(data) };
  await recordWebhookEvents(system.worker, [
    { type: 'batch.completed', facts, accountId: caller.account.id, subjectId: 'bat_1' },
  ]);
}

type Listening = { readonly part: Part; readonly lines: readonly string[] };

/** Starts `corridor listen`, and waits until it listens. */
async function listen(flags: readonly string[], apiUrl = system.apiUrl): Promise<Listening> {
  const lines: string[] = [];
  const part = await startProcess({
    name: 'listen',
    command: process.execPath,
    args: [main, 'listen', '--data', folder, ...flags],
    env: { ...process.env, CORRIDOR_API_URL: apiUrl, CORRIDOR_API_KEY: caller.apiKey },
    ready: { line: (line) => /Press Ctrl-C to stop/.exec(line)?.[0] },
    readyTimeoutMs: 30_000,
    stopTimeoutMs: 5_000,
    onLog: (line) => lines.push(line),
  });
  onTestFinished(() => part.stop());
  return { part, lines };
}

/** The sequence numbers of the printed events. */
const printed = ({ lines }: Listening) =>
  lines.flatMap((line) => /^\S+Z {2}(\d+) {2}/.exec(line)?.[1] ?? []).map(Number);

/** Stops it as Ctrl-C does. */
async function interrupt({ part }: Listening) {
  process.kill(part.pid, 'SIGINT');
  expect((await part.exited).code).toBe(0);
}

const soon = { timeout: 10_000 };

describe('corridor listen', () => {
  it('prints new events, and forwards them signed with the secret that it shows', async () => {
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    await happen();
    const listening = await listen(['--forward', receiver.url]);
    await happen();
    const { headers, body } = await receiver.next(() => true);
    const secret = /signed with (whsec_\S+)$/.exec(listening.lines.join('\n'))?.[1] ?? '';
    rememberSecret({ secret });
    const verified = new Webhook(secret).verify(body, headers);
    const { data } = webhookExample('batch.completed', '2026-06-01');
    expect(verified).toMatchObject({ type: 'batch.completed', api_version: '2026-06-01', data });
    await expect.poll(() => printed(listening), soon).toEqual([2]);
    const [line] = listening.lines.filter((each) => each.includes('batch.completed'));
    expect(line).toMatch(/^20\S+Z {2}2 {2}batch\.completed {2}bat_\w+ {2}completed {2}-> 2\d\d$/);
    await interrupt(listening);
  });

  it('resumes where it stopped, with the same secret', async () => {
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    const flags = ['--forward', receiver.url];
    await happen();
    const first = await listen([...flags, '--from', '0']);
    await expect.poll(() => printed(first), soon).toEqual([1]);
    await interrupt(first);
    await happen();
    await happen();
    const second = await listen(flags);
    await expect.poll(() => printed(second), soon).toEqual([2, 3]);
    const secretOf = ({ lines }: Listening) => /whsec_\S+/.exec(lines.join('\n'))?.[0];
    expect(secretOf(second)).toBe(secretOf(first));
    rememberSecret({ secret: secretOf(first) });
    await interrupt(second);
  });

  it('survives a restart of the API and a missing receiver', async () => {
    const port = String(await freePort());
    const start = () => startApiProcess(system.urls.api, { API_PORT: port });
    const api = await start();
    const nowhere = `http://127.0.0.1:${await freePort()}`;
    const listening = await listen(['--forward', nowhere], api.url);
    await happen();
    await expect.poll(() => printed(listening), soon).toEqual([1]);
    expect(listening.lines.join('\n')).toContain('-> ECONNREFUSED');
    await api.part.stop();
    await happen();
    await expect
      .poll(() => listening.lines.join('\n'), soon)
      .toContain('The events could not be read');
    const again = await start();
    onTestFinished(() => again.part.stop());
    await happen();
    await expect.poll(() => printed(listening), { timeout: 30_000 }).toEqual([1, 2, 3]);
    await interrupt(listening);
  });

  it('ends with the process that started it, as npx does when it is killed', async () => {
    const output = join(folder, 'events.txt');
    const shell = spawn(
      'sh',
      [
        '-c',
        '"$0" "$@" > "$OUTPUT" & echo $!; wait',
        process.execPath,
        main,
        'listen',
        '--data',
        folder,
      ],
      {
        env: {
          ...process.env,
          OUTPUT: output,
          CORRIDOR_API_URL: system.apiUrl,
          CORRIDOR_API_KEY: caller.apiKey,
        },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const [printedPid] = await once(shell.stdout, 'data');
    const pid = Number(String(printedPid));
    const isThere = () => {
      try {
        return process.kill(pid, 0);
      } catch {
        return false;
      }
    };
    onTestFinished(() => {
      if (isThere()) process.kill(pid, 'SIGKILL');
    });
    await expect
      .poll(() => readFile(output, 'utf8'), { timeout: 30_000 })
      .toContain('Press Ctrl-C to stop');
    expect(isThere()).toBe(true);
    shell.kill('SIGKILL');
    await expect.poll(isThere, soon).toBe(false);
  });

  it('shows only the requested event types', async () => {
    await happen();
    const none = await listen(['--from', '0', '--events', 'payout.settled,payout.failed']);
    const all = await listen(['--from', '0', '--events', 'batch.completed']);
    await expect.poll(() => printed(all), soon).toEqual([1]);
    expect(printed(none)).toEqual([]);
    await Promise.all([interrupt(none), interrupt(all)]);
  });

  it.each([
    ['an unknown type', ['--events', 'payout.paid'], {}, '--events expects a list of payout.sent'],
    ['another machine', ['--forward', 'http://example.com'], {}, '--forward expects a URL of this'],
    ['a position that is none', ['--from', '-1'], {}, '--from'],
    ['a key that is none', [], { CORRIDOR_API_KEY: 'cor_test_none' }, 'api_key_invalid'],
    ['half of what it needs', [], { CORRIDOR_API_KEY: '' }, 'Set both CORRIDOR_API_URL and'],
  ])('refuses %s', async (_, flags, env, expected) => {
    const lines: string[] = [];
    const starting = startProcess({
      name: 'listen',
      command: process.execPath,
      args: [main, 'listen', '--data', folder, ...flags],
      env: {
        ...process.env,
        ...{ CORRIDOR_API_URL: system.apiUrl, CORRIDOR_API_KEY: caller.apiKey },
        ...env,
      },
      ready: { line: (line) => /Press Ctrl-C to stop/.exec(line)?.[0] },
      readyTimeoutMs: 30_000,
      onLog: (line) => lines.push(line),
    });
    await expect(starting).rejects.toThrow('2');
    expect(lines.join('\n')).toContain(expected);
  });
});
