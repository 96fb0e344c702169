import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { appendFile, copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { createBank } from '../../sandbox/bank/bank.js';
import { openJournal } from '../../sandbox/bank/journal.js';
import { planOf, simulateOrders } from '../../sandbox/bank/orders.js';
import { startBank } from '../../sandbox/bank/server.js';
import type { Transfer } from '../../src/rails/rail.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';

const apiToken = 'token-of-the-bank-in-tests';
const callbackSecret = 'secret-of-callbacks-in-tests';

const callbackBody = z.object({
  events: z.array(
    z.object({
      id: z.string(),
      key: z.string(),
      type: z.enum(['settled', 'rejected', 'returned']),
      amount: z.string(),
      currency: z.string(),
      code: z.string().optional(),
      reason: z.string().optional(),
      at: z.string(),
      bank_reference: z.string(),
    }),
  ),
});
type Event = z.infer<typeof callbackBody>['events'][number];
type Callback = { readonly raw: string; readonly signature: string; readonly status: number };

/** A service that receives callbacks. It answers with `statuses` in order, then with 200. */
async function startReceiver(statuses: number[] = []) {
  const callbacks: Callback[] = [];
  const waiting = new Set<() => void>();
  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part);
    const status = statuses.shift() ?? 200;
    const signature = String(request.headers['bank-signature']);
    callbacks.push({ raw: Buffer.concat(parts).toString(), signature, status });
    response.writeHead(status).end();
    for (const check of waiting) check();
  }
  const server = createServer((request, response) => void receive(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = z.object({ port: z.number() }).parse(server.address());
  const eventsOf = (key: string): Event[] =>
    callbacks
      .filter((callback) => callback.status === 200)
      .flatMap((callback) => callbackBody.parse(JSON.parse(callback.raw)).events)
      .filter((event) => event.key === key);
  /** Resolves when a callback has made the condition true; only the test's timeout limits the wait. */
  const until = (isTrue: () => boolean) =>
    new Promise<void>((resolve) => {
      const check = () => {
        if (!isTrue()) return;
        waiting.delete(check);
        resolve();
      };
      waiting.add(check);
      check();
    });
  const events = async (key: string, count = 1): Promise<Event[]> => {
    await until(() => eventsOf(key).length >= count);
    return eventsOf(key);
  };
  return {
    url: `http://127.0.0.1:${address.port}/callbacks`,
    callbacks,
    eventsOf,
    until,
    events,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

type Receiver = Awaited<ReturnType<typeof startReceiver>>;
type RunningBank = Awaited<ReturnType<typeof startBank>>;

let folder: string;
let journalPath: string;
let receiver: Receiver;
let bank: RunningBank;
const open: { close(): Promise<void> }[] = [];

const dayMs = 24 * 60 * 60 * 1000;

async function start(
  path: string,
  callbackUrl: string,
  log: string[] = [],
  keyRetentionMs = dayMs,
): Promise<RunningBank> {
  const started = await startBank({
    host: '127.0.0.1',
    port: 0,
    journalPath: path,
    apiToken,
    callbackUrl,
    callbackSecret,
    keyRetentionMs,
    log: (message) => log.push(message),
  });
  open.push(started);
  return started;
}

async function stop(): Promise<void> {
  open.splice(open.indexOf(bank), 1);
  await bank.close();
}

async function restart(): Promise<void> {
  await stop();
  bank = await start(journalPath, receiver.url);
}

async function startReceiving(statuses: number[] = []): Promise<Receiver> {
  const started = await startReceiver(statuses);
  open.push(started);
  return started;
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sandbox-bank-'));
  journalPath = join(folder, 'journal.jsonl');
  receiver = await startReceiving();
  bank = await start(journalPath, receiver.url);
});

afterEach(async () => {
  for (const part of open.splice(0).reverse()) await part.close();
  await rm(folder, { recursive: true });
});

const transfer = (key: string, remittance = '', amount = '1250') => ({
  key,
  amount,
  currency: 'EUR',
  beneficiary: { name: 'Ana Sousa', country: 'PT', account: 'PT50000201231234567890154' },
  remittance,
});

async function call(path: string, body?: object, options: RequestInit = {}) {
  const response = await fetch(`${bank.url}${path}`, {
    headers: { authorization: `Bearer ${apiToken}` },
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    ...options,
  });
  const answer: unknown = await response.json();
  return { status: response.status, answer };
}

const submit = async (order: object) => (await call('/transfers', order)).answer;

async function lookup(key: string): Promise<unknown> {
  const { answer } = await call('/transfers/lookup', { keys: [key] });
  return z.object({ results: z.array(z.unknown()).length(1) }).parse(answer).results[0];
}

const journalLine = z.looseObject({
  seq: z.number(),
  type: z.string(),
  key: z.string(),
  at: z.string(),
});

async function journalOf(key: string) {
  const text = await readFile(journalPath, 'utf8');
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => journalLine.parse(JSON.parse(line)));
  return lines.filter((line) => line.key === key);
}

const typesOf = async (key: string) => (await journalOf(key)).map((line) => line.type);

const today = () => new Date().toISOString().slice(0, 10);

test('fifty requests at once with one key move money once and get one answer', async () => {
  const answers = await Promise.all(Array.from({ length: 50 }, () => submit(transfer('po_1'))));
  expect(answers[0]).toEqual({
    key: 'po_1',
    outcome: 'accepted',
    bank_reference: expect.stringMatching(/^SBX/),
  });
  for (const answer of answers) expect(answer).toEqual(answers[0]);
  expect((await typesOf('po_1')).filter((type) => type === 'transfer')).toHaveLength(1);
  expect(await receiver.events('po_1')).toHaveLength(1);
});

test('a transfer is in the journal before it is answered', async () => {
  await submit(transfer('po_1', 'simulate: never settle'));
  expect(await journalOf('po_1')).toMatchObject([
    {
      seq: 1,
      type: 'transfer',
      amount: '1250',
      currency: 'EUR',
      remittance: 'simulate: never settle',
    },
  ]);
});

test('nothing is answered or called back before the journal is on disk', async () => {
  const journal = await openJournal(join(folder, 'held.jsonl'));
  let release = () => {};
  const disk = new Promise<void>((resolve) => {
    release = resolve;
  });
  const held = createBank({
    journal: { ...journal, durable: () => disk.then(() => journal.durable()) },
    callbackUrl: receiver.url,
    callbackSecret,
    keyRetentionMs: dayMs,
    log: () => {},
  });
  open.push(held);
  const done: string[] = [];
  const note = (name: string) => () => done.push(name);
  const answers = [
    held.submit([transfer('po_1')]).then(note('submit')),
    held.submit([transfer('po_1')]).then(note('repetition')),
    held.lookup(['po_1']).then(note('lookup')),
    held.voidKey('po_2').then(note('void')),
    held.statement(today()).then(note('statement')),
  ];
  // The other bank settles later than this one would, which gives the event loop time.
  await submit(transfer('po_3', 'simulate: delay 300ms'));
  await receiver.events('po_3');
  expect(done).toEqual([]);
  expect(receiver.eventsOf('po_1')).toEqual([]);
  release();
  await Promise.all(answers);
  expect(await receiver.events('po_1')).toHaveLength(1);
});

test('a key with other fields is refused as a duplication and the first transfer stands', async () => {
  const first = await submit(transfer('po_1', 'rent'));
  for (const other of [
    transfer('po_1', 'rent', '1251'),
    transfer('po_1', 'simulate: timeout then nothing'),
    { ...transfer('po_1', 'rent'), currency: 'USD' },
    { ...transfer('po_1', 'rent'), beneficiary: { name: 'B', country: 'PT', account: '1' } },
  ]) {
    expect(await submit(other)).toMatchObject({ outcome: 'rejected', code: 'AM05' });
  }
  expect(await submit(transfer('po_1', 'rent'))).toEqual(first);
  expect(await receiver.events('po_1')).toMatchObject([{ type: 'settled', amount: '1250' }]);
});

test('without an order a transfer settles and is called back with what the journal says', async () => {
  await submit(transfer('po_1', 'Invoice 17'));
  const [event] = await receiver.events('po_1');
  const settled = (await journalOf('po_1')).find((line) => line.type === 'settled');
  expect(event).toMatchObject({
    type: 'settled',
    amount: '1250',
    currency: 'EUR',
    at: settled?.at,
  });
  expect(event?.id).toBe(settled?.event);
  expect(await lookup('po_1')).toMatchObject({ state: 'settled', amount: '1250', at: settled?.at });
});

test('every listed order is understood, in any letter case and at any place', () => {
  for (const { order } of simulateOrders) {
    const text = order.replace('CODE', 'AC04').replace('DURATION', '2s');
    const usual = planOf(`Invoice 17 simulate: ${text}`);
    expect(usual, text).not.toMatchObject({ code: 'NARR' });
    expect(planOf(`SIMULATE:${text.toUpperCase()} ; more`), text).toEqual(usual);
  }
});

test('an order that is not understood is refused with the list of those that are', async () => {
  for (const order of ['explode', 'delay 25h', 'reject ZZ99', 'delay 10s or so', '']) {
    const answer = await submit(transfer(`po_${order.replaceAll(' ', '_')}`, `simulate: ${order}`));
    expect(answer).toMatchObject({ outcome: 'rejected', code: 'NARR' });
    const { reason } = z.object({ reason: z.string() }).parse(answer);
    for (const known of simulateOrders) expect(reason).toContain(known.order);
  }
});

test('simulate: reject answers with the code, again and again, and sends nothing', async () => {
  const order = transfer('po_1', 'simulate: reject AC04');
  const rejected = {
    key: 'po_1',
    outcome: 'rejected',
    code: 'AC04',
    reason: 'The account is closed.',
  };
  expect(await submit(order)).toEqual(rejected);
  expect(await submit(order)).toEqual(rejected);
  expect(await typesOf('po_1')).toEqual(['rejected']);
  expect(await lookup('po_1')).toMatchObject({ state: 'rejected', code: 'AC04' });
});

test('simulate: late rejection accepts first and rejects by callback', async () => {
  const order = transfer('po_1', 'simulate: late rejection AC04');
  expect(await submit(order)).toMatchObject({ outcome: 'accepted' });
  expect(await receiver.events('po_1')).toMatchObject([{ type: 'rejected', code: 'AC04' }]);
  expect(await lookup('po_1')).toMatchObject({ state: 'rejected', code: 'AC04' });
  // The first answer never changes.
  expect(await submit(order)).toMatchObject({ outcome: 'accepted' });
});

test('simulate: return settles, then returns in full; the statement shows both ways', async () => {
  await submit(transfer('po_1', 'simulate: return AM04 after 400ms'));
  const events = await receiver.events('po_1', 2);
  expect(events).toMatchObject([
    { type: 'settled', amount: '1250' },
    { type: 'returned', amount: '1250', code: 'AM04' },
  ]);
  expect(await lookup('po_1')).toMatchObject({
    state: 'returned',
    returned_amount: '1250',
    code: 'AM04',
  });
  expect((await call(`/statement?date=${today()}`)).answer).toMatchObject({
    date: today(),
    closed: false,
    entries: [
      {
        key: 'po_1',
        direction: 'debit',
        amount: '1250',
        bank_reference: events[0]?.bank_reference,
      },
      { key: 'po_1', direction: 'credit', amount: '1250', code: 'AM04' },
    ],
    totals: { EUR: { debits: '1250', credits: '1250' } },
  });
});

test('simulate: return before settlement never settles', async () => {
  await submit(transfer('po_1', 'simulate: return AM04 after 250ms before settlement'));
  expect(await receiver.events('po_1')).toMatchObject([{ type: 'returned' }]);
  expect(await typesOf('po_1')).not.toContain('settled');
  const { answer } = await call(`/statement?date=${today()}`);
  expect(answer).toMatchObject({ totals: { EUR: { debits: '1250', credits: '1250' } } });
});

test('simulate: delay settles no earlier than ordered', async () => {
  await submit(transfer('po_1', 'simulate: delay 600ms'));
  const [event] = await receiver.events('po_1');
  const [taken] = await journalOf('po_1');
  const delayMs = Date.parse(event?.at ?? '') - Date.parse(taken?.at ?? '');
  expect(delayMs).toBeGreaterThanOrEqual(600);
});

test('simulate: timeout then settle pays without answering; a repeated request gets the answer', async () => {
  const order = transfer('po_1', 'simulate: timeout then settle');
  const hangUp = new AbortController();
  const silence = call('/transfers', order, { signal: hangUp.signal });
  const first = await Promise.race([silence, receiver.events('po_1')]);
  expect(first).toMatchObject([{ type: 'settled' }]);
  hangUp.abort();
  await expect(silence).rejects.toThrow('aborted');
  expect(await submit(order)).toMatchObject({ outcome: 'accepted' });
  expect((await typesOf('po_1')).filter((type) => type === 'transfer')).toHaveLength(1);
});

test('simulate: timeout then nothing neither answers nor records, every time', async () => {
  const order = transfer('po_1', 'simulate: timeout then nothing');
  for (const _ of [1, 2]) {
    const silence = call('/transfers', order, { signal: AbortSignal.timeout(300) });
    await expect(silence).rejects.toThrow('timeout');
  }
  expect(await lookup('po_1')).toEqual({ key: 'po_1', state: 'not_found' });
  expect(await readFile(journalPath, 'utf8')).toBe('');
});

test('a stop does not wait for a request that is left unanswered', async () => {
  const silence = call('/transfers', transfer('po_1', 'simulate: timeout then settle'));
  const broken = expect(silence).rejects.toThrow('fetch failed');
  await receiver.events('po_1');
  const beganMs = performance.now();
  await stop();
  // Well below the time that a stop grants to requests that can still be answered.
  expect(performance.now() - beganMs).toBeLessThan(800);
  await broken;
});

test('simulate: duplicate callbacks sends thrice under one id and once under another', async () => {
  await submit(transfer('po_1', 'simulate: duplicate callbacks'));
  const ids = (await receiver.events('po_1', 4)).map((event) => event.id);
  expect(ids.slice(0, 3)).toEqual([ids[0], ids[0], ids[0]]);
  expect(new Set(ids).size).toBe(2);
  expect(receiver.callbacks).toHaveLength(4);
});

test('simulate: never settle stays accepted while later transfers settle', async () => {
  await submit(transfer('po_1', 'simulate: never settle'));
  await submit(transfer('po_2', 'simulate: delay 300ms'));
  await receiver.events('po_2');
  expect(receiver.eventsOf('po_1')).toEqual([]);
  expect(await lookup('po_1')).toMatchObject({ state: 'accepted' });
});

test('simulate: wrong amount misstates the amount by one, but not in the books', async () => {
  await submit(transfer('po_1', 'simulate: wrong amount'));
  expect(await receiver.events('po_1')).toMatchObject([{ type: 'settled', amount: '1251' }]);
  expect(await lookup('po_1')).toMatchObject({ state: 'settled', amount: '1251' });
  const { answer } = await call(`/statement?date=${today()}`);
  expect(answer).toMatchObject({ entries: [{ amount: '1250' }] });
});

test('in bulk a time-out is the one unknown answer and the others are unaffected', async () => {
  const { answer } = await call('/transfers/bulk', {
    transfers: [
      transfer('po_1'),
      transfer('po_2', 'simulate: timeout then settle'),
      transfer('po_3', 'simulate: timeout then nothing'),
      transfer('po_4', 'simulate: reject AC04'),
      transfer('po_1'),
      transfer('po_1', 'else'),
    ],
  });
  expect(answer).toMatchObject({
    results: [
      { key: 'po_1', outcome: 'accepted' },
      { key: 'po_2', outcome: 'unknown' },
      { key: 'po_3', outcome: 'unknown' },
      { key: 'po_4', outcome: 'rejected', code: 'AC04' },
      { key: 'po_1', outcome: 'accepted' },
      { key: 'po_1', outcome: 'rejected', code: 'AM05' },
    ],
  });
  await Promise.all([receiver.events('po_1'), receiver.events('po_2')]);
  expect(await lookup('po_3')).toMatchObject({ state: 'not_found' });
});

test('five hundred settlements arrive in a few callbacks, each once', async () => {
  const keys = Array.from({ length: 500 }, (_, index) => `po_${index}`);
  await call('/transfers/bulk', { transfers: keys.map((key) => transfer(key)) });
  await Promise.all(keys.map((key) => receiver.events(key)));
  expect(receiver.callbacks.length).toBeLessThanOrEqual(5);
  expect(keys.flatMap((key) => receiver.eventsOf(key))).toHaveLength(500);
});

test('a voided key is refused for ever, also after a restart', async () => {
  const voided = { key: 'po_1', outcome: 'voided' };
  expect((await call('/transfers/void', { key: 'po_1' })).answer).toEqual(voided);
  expect((await call('/transfers/void', { key: 'po_1' })).answer).toEqual(voided);
  await restart();
  for (const remittance of ['', 'simulate: timeout then settle']) {
    const answer = await submit(transfer('po_1', remittance));
    expect(answer).toMatchObject({ outcome: 'rejected', code: 'DS02' });
  }
  expect(await lookup('po_1')).toMatchObject({ state: 'voided' });
  expect(await typesOf('po_1')).toEqual(['voided']);
});

test('a transfer’s key is forgotten after the time that the bank declares, and a void never', async () => {
  await call('/transfers/void', { key: 'po_1' });
  await submit(transfer('po_2'));
  await receiver.events('po_2');
  await stop();
  bank = await start(journalPath, receiver.url, [], 0);
  expect(await lookup('po_1')).toMatchObject({ state: 'voided' });
  expect(await lookup('po_2')).toMatchObject({ state: 'not_found' });
  // This is no proof that the payout may be released: the bank has paid it.
  const voided = (await call('/transfers/void', { key: 'po_2' })).answer;
  expect(voided).toEqual({ key: 'po_2', outcome: 'voided' });
  expect(await typesOf('po_2')).toEqual(['transfer', 'settled', 'acknowledged', 'voided']);
});

test('a void is too late once the bank has a transfer, settled or not', async () => {
  await submit(transfer('po_1', 'simulate: never settle'));
  await submit(transfer('po_2'));
  await receiver.events('po_2');
  const voided = async (key: string) => (await call('/transfers/void', { key })).answer;
  expect(await voided('po_1')).toEqual({ key: 'po_1', outcome: 'too_late', state: 'accepted' });
  expect(await voided('po_2')).toEqual({ key: 'po_2', outcome: 'too_late', state: 'settled' });
});

test('a kill loses nothing that was answered: the next run continues from there', async () => {
  const answer = await submit(transfer('po_1', 'simulate: return AM04 after 800ms'));
  await submit(transfer('po_2', 'simulate: reject AC04'));
  await receiver.events('po_1');
  // The state after a kill: the file so far, and a line that was being written.
  const killedPath = join(folder, 'killed.jsonl');
  await copyFile(journalPath, killedPath);
  await appendFile(killedPath, '{"seq":99,"type":"voided","ke');
  const secondReceiver = await startReceiving();
  bank = await start(killedPath, secondReceiver.url);
  journalPath = killedPath;
  expect(await submit(transfer('po_1', 'simulate: return AM04 after 800ms'))).toEqual(answer);
  expect(await submit(transfer('po_2'))).toMatchObject({ outcome: 'rejected', code: 'AM05' });
  await secondReceiver.until(() =>
    secondReceiver.eventsOf('po_1').some((event) => event.type === 'returned'),
  );
  const lines = (await readFile(killedPath, 'utf8')).trimEnd().split('\n');
  const sequence = lines.map((line) => journalLine.parse(JSON.parse(line)).seq);
  expect(sequence).toEqual(lines.map((_, index) => index + 1));
  expect((await typesOf('po_1')).filter((type) => type === 'settled')).toHaveLength(1);
});

test('an event that was not accepted before a restart is sent after it, under the same id', async () => {
  const failing = await startReceiving(Array.from({ length: 50 }, () => 503));
  const path = join(folder, 'deaf.jsonl');
  bank = await start(path, failing.url);
  await submit(transfer('po_1'));
  await failing.until(() => failing.callbacks.length > 0);
  await stop();
  const refused = callbackBody.parse(JSON.parse(failing.callbacks[0]?.raw ?? ''));
  bank = await start(path, receiver.url);
  expect(await receiver.events('po_1')).toEqual(refused.events);
});

test('an event that was accepted is not sent again after a restart', async () => {
  await submit(transfer('po_1'));
  await receiver.events('po_1');
  // The next callback is sent only after the previous acknowledgement is in the journal.
  await submit(transfer('po_2'));
  await receiver.events('po_2');
  await restart();
  await submit(transfer('po_3'));
  await receiver.events('po_3');
  expect(receiver.eventsOf('po_1')).toHaveLength(1);
});

test('a journal that cannot be understood stops the start and names the line', async () => {
  const path = join(folder, 'broken.jsonl');
  await appendFile(path, 'not json\n{"seq":2}\n');
  await expect(start(path, receiver.url)).rejects.toThrow(`${path}:1`);
});

test('a callback is repeated until it is accepted, with a valid signature each time', async () => {
  const faulty = await startReceiving([500, 302]);
  const log: string[] = [];
  bank = await start(join(folder, 'faulty.jsonl'), faulty.url, log);
  await submit(transfer('po_1'));
  await faulty.events('po_1');
  expect(faulty.callbacks.map((callback) => callback.status)).toEqual([500, 302, 200]);
  expect(log).toEqual([expect.stringContaining('HTTP 500'), expect.stringContaining('HTTP 302')]);
  for (const { raw, signature } of faulty.callbacks) {
    expect(raw).toBe(faulty.callbacks[0]?.raw);
    const [, seconds, v1] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(signature) ?? [];
    expect(v1).toBe(createHmac('sha256', callbackSecret).update(`${seconds}.${raw}`).digest('hex'));
    expect(Math.abs(Date.now() / 1_000 - Number(seconds))).toBeLessThan(30);
  }
});

test('a refused request is told what to change', async () => {
  const bare = { method: 'POST', headers: {} };
  expect(await call('/transfers', transfer('po_1'), bare)).toMatchObject({ status: 401 });
  expect(await call('/elsewhere', {})).toMatchObject({ status: 404 });
  const refusals: readonly [string, object, string][] = [
    ['/transfers', { ...transfer('po_1'), amount: '12.50' }, 'amount: expected minor units'],
    ['/transfers', { ...transfer('po_1'), amount: 1250 }, 'amount: expected a string'],
    [
      '/transfers',
      { ...transfer('po_1'), beneficiary: undefined },
      'beneficiary: expected an object',
    ],
    ['/transfers', [], 'body: expected an object'],
    [
      '/transfers/bulk',
      { transfers: [transfer('po_1'), transfer('')] },
      'transfers.1.key: expected',
    ],
    ['/transfers/lookup', { keys: Array(501).fill('po_1') }, 'keys: expected a list of 1 to 500'],
    ['/transfers/void', {}, 'key: expected a string'],
  ];
  for (const [path, body, message] of refusals) {
    expect(await call(path, body)).toEqual({
      status: 400,
      answer: { message: expect.stringContaining(message) },
    });
  }
  expect(await call('/statement?date=2026-02-30')).toMatchObject({ status: 400 });
  expect(await call('/statement?date=2020-01-01')).toMatchObject({
    answer: { closed: true, entries: [], totals: {} },
  });
  expect(await call('/transfers', { remittance: 'x'.repeat(4 * 1024 * 1024) })).toMatchObject({
    status: 413,
  });
  expect(await readFile(journalPath, 'utf8')).toBe('');
});

/** A number of transfers as the service passes them to its rail. */
function transfersTo(count: number, ibanOf: (index: number) => string): readonly Transfer[] {
  const person = { type: 'individual', name: 'Ana', country: 'PT', currency: 'EUR' } as const;
  return Array.from({ length: count }, (_, index) => ({
    key: `po_${index}`,
    amountMinor: 1_250n,
    currency: 'EUR',
    beneficiary: { ...person, iban: ibanOf(index) },
    remittance: '',
  }));
}

test('one transfer that the bank cannot read does not hold up the others', async () => {
  const rail = createSandboxRail({ url: bank.url, apiToken });
  onTestFinished(() => rail.close());
  // The bank accepts account numbers of up to 100 characters, and refuses the whole request otherwise.
  const transfers = transfersTo(9, (index) =>
    index === 5 ? 'P'.repeat(101) : 'PT50000201231234567890154',
  );
  const answers = await rail.submit(transfers);
  const kinds = new Map(answers.map(({ key, kind }) => [key, kind]));
  expect(kinds.get('po_5')).toBe('unknown');
  kinds.delete('po_5');
  expect(kinds.size).toBe(8);
  expect([...kinds.values()].every((kind) => kind === 'accepted')).toBe(true);
});

test('a bank that refuses every request gets a limited number, and no half is sent late', async () => {
  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    request.resume().once('end', () => response.writeHead(400).end('{}'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = z.object({ port: z.number() }).parse(server.address());
  const rail = createSandboxRail({ url: `http://127.0.0.1:${port}`, apiToken });
  onTestFinished(() => rail.close());
  const transfers = transfersTo(500, () => 'PT50000201231234567890154');
  const answers = await rail.submit(transfers);
  expect(answers).toHaveLength(500);
  expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(['unknown']));
  expect(requests).toBe(40);
  // The process was suspended after the first answer, so the keys may have been forgotten since.
  requests = 0;
  const clock = vi.spyOn(Date, 'now').mockReturnValueOnce(0).mockReturnValueOnce(1);
  onTestFinished(() => clock.mockRestore());
  await rail.submit(transfers);
  expect(requests).toBe(1);
});
