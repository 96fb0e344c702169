import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { eventually } from '../assertions/eventually.js';
import { openWire } from '../fixtures/wire.js';
import { type ApiProcess, startApiProcess } from '../servers/apiProcess.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';

/** The secret that startApiProcess sets. */
const secret = 'a-callback-secret-of-the-tests';
let data: TestDatabase;
let api: ApiProcess;

beforeAll(async () => {
  data = await createTestDatabase();
  api = await startApiProcess(data.url);
});
afterAll(async () => {
  await api.part.stop();
  await data.drop();
});

function signatureOf(body: string | Buffer): string {
  const seconds = Math.floor(Date.now() / 1000);
  const digest = createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex');
  return `t=${seconds},v1=${digest}`;
}

const event = { id: 'bev_1', key: 'po_1', type: 'settled', amount: '100', currency: 'EUR' };
const bodyOf = (...events: readonly object[]) => JSON.stringify({ events });

const problem = z.object({ code: z.string(), expected: z.string().optional() });

async function callBack(body: string | Buffer) {
  const response = await fetch(`${api.url}/rails/sandbox/callbacks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'bank-signature': signatureOf(body) },
    body: new Uint8Array(Buffer.from(body)),
  });
  return { status: response.status, text: await response.text() };
}

async function refusedCallbacks(): Promise<number> {
  const text = await (await fetch(`${api.metricsUrl}/metrics`)).text();
  const value = /^corridor_unreadable_callbacks_total\{[^}]*rail="sandbox"[^}]*\} (\d+)$/m.exec(
    text,
  );
  return Number(value?.[1] ?? 0);
}

const inbox = async () => (await data.database`select from rail_inbox`).count;

describe('a signed callback that cannot be parsed', () => {
  let before: number;
  beforeEach(async () => {
    before = await refusedCallbacks();
  });

  it.each<[string, string | Buffer, string]>([
    ['not JSON', '{"events":[', 'the body'],
    ['an empty body', '', 'the body'],
    ['not UTF-8', Buffer.from([0xff, 0xfe]), 'the body'],
    ['not an object', '[1]', 'the body'],
    ['no events', '{}', 'events'],
    ['an event without an amount', bodyOf({ ...event, amount: undefined }), 'events.0.amount'],
    ['an event of an unknown type', bodyOf(event, { ...event, type: 'lost' }), 'events.1.type'],
    ['U+0000 in an id', bodyOf({ ...event, id: 'bev\0' }), 'events.0.id'],
    ['U+0000 in a key', bodyOf({ ...event, key: 'po_\0' }), 'events.0.key'],
    [
      'half a surrogate pair',
      `{"events":[${JSON.stringify(event).replace('bev_1', '\\ud800')}]}`,
      'events.0.id',
    ],
    ['too many events', bodyOf(...Array.from({ length: 501 }, () => event)), 'events'],
  ])('is refused with 400, counted and logged: %s', async (_, body, where) => {
    const kept = await inbox();
    const answer = await callBack(body);
    expect(answer.status).toBe(400);
    expect(problem.parse(JSON.parse(answer.text))).toMatchObject({
      code: 'body_malformed',
      expected: expect.stringContaining(where),
    });
    expect(await inbox()).toBe(kept);
    expect(await refusedCallbacks()).toBe(before + 1);
    await eventually('the log line', 5_000, () =>
      api.lines.find(
        (line) => line.includes('a signed callback cannot be read') && line.includes(where),
      ),
    );
  });

  it('is logged without its values', async () => {
    await callBack(bodyOf({ ...event, reason: 'to Zaphod Plantagenet', amount: '-5' }));
    await eventually('the log line', 5_000, () =>
      api.lines.find((line) => line.includes('events.0.amount')),
    );
    expect(api.lines.join('\n')).not.toContain('Zaphod');
  });

  it('is not counted if it can be parsed', async () => {
    const answer = await callBack(bodyOf(event));
    expect(answer).toMatchObject({ status: 200, text: '{"received":1}' });
    expect(await refusedCallbacks()).toBe(before);
  });
});

describe('a callback is refused by its headers alone, before any byte of its body is sent', () => {
  const signature = `Bank-Signature: t=${Math.floor(Date.now() / 1000)},v1=${'0'.repeat(64)}\r\n`;
  const length = 'Content-Length: 200000\r\n';
  const old = Math.floor(Date.now() / 1000) - 301;
  it.each([
    ['of an unknown rail', '/rails/nosuch/callbacks', signature + length, 404, 'route_not_found'],
    ['without a signature', '/rails/sandbox/callbacks', length, 401, 'signature_invalid'],
    [
      'with a malformed signature',
      '/rails/sandbox/callbacks',
      `Bank-Signature: x\r\n${length}`,
      401,
      'signature_invalid',
    ],
    [
      'with an old signature',
      '/rails/sandbox/callbacks',
      `Bank-Signature: t=${old},v1=${'0'.repeat(64)}\r\n${length}`,
      401,
      'signature_invalid',
    ],
    [
      'with a body that is too long',
      '/rails/sandbox/callbacks',
      `${signature}Content-Length: 262145\r\n`,
      413,
      'body_too_large',
    ],
  ])('%s', async (_, path, headers, status, code) => {
    const wire = await openWire(api.url);
    wire.write(
      `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${headers}\r\n`,
    );
    const answer = await wire.answer();
    expect(answer.status).toBe(status);
    expect(problem.parse(JSON.parse(answer.body)).code).toBe(code);
    wire.destroy();
  });

  it('if 64 callbacks of its address are being read; one of another address is not', async () => {
    const head = `POST /rails/sandbox/callbacks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${signature}Content-Length: 2\r\n\r\n`;
    const open = async (address: string) => {
      const wire = await openWire(api.url, address);
      wire.write(head);
      return wire;
    };
    const wires = await Promise.all(Array.from({ length: 65 }, () => open('127.0.4.1')));
    const answers = wires.map((wire) => wire.answer());
    const refused = await Promise.race(answers);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('1');
    const other = await open('127.0.4.2');
    for (const wire of [other, ...wires]) wire.write('{}');
    expect((await other.answer()).status).toBe(401);
    const statuses = (await Promise.all(answers)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 401)).toHaveLength(64);
    for (const wire of [other, ...wires]) wire.destroy();
    const next = await open('127.0.4.1');
    next.write('{}');
    expect((await next.answer()).status).toBe(401);
    next.destroy();
  });
});
