import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { afterEach, expect, it } from 'vitest';
import { askNameServers, guardedLookups } from '../../src/webhooks/guard.js';
import { createSender, type SendOutcome } from '../../src/webhooks/sender.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { eventually } from '../assertions/eventually.js';

// A customer's name servers must affect nobody else: webhooks, files, bank and database.

const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A name server that answers 10.0.0.1 for `quick.example`, and does not answer for any other name. */
async function startNameServer() {
  const queried: string[] = [];
  const socket = createSocket('udp4').bind(0, '127.0.0.1');
  await once(socket, 'listening');
  closers.push(async () => {
    socket.close();
    await once(socket, 'close');
  });
  socket.on('message', (query, { port, address }) => {
    const question = query.subarray(12, query.indexOf(0, 12) + 5);
    const [label = ''] = [...labelsOf(question)];
    queried.push(label);
    if (label !== 'quick') return;
    const isIpv4 = question.at(-3) === 1;
    // RFC 1035: an answer to one question, with one record that points to its name, or none.
    const counts = Buffer.from([0, 1, 0, isIpv4 ? 1 : 0, 0, 0, 0, 0]);
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1]);
    const head = Buffer.concat([query.subarray(0, 2), Buffer.from([0x81, 0x80]), counts]);
    socket.send(Buffer.concat([head, question, ...(isIpv4 ? [record] : [])]), port, address);
  });
  return { queried, server: `127.0.0.1:${socket.address().port}` };
}

function* labelsOf(name: Buffer): Generator<string> {
  for (let at = 0; (name[at] ?? 0) > 0; at += (name[at] ?? 0) + 1) {
    yield name.toString('latin1', at + 1, at + 1 + (name[at] ?? 0));
  }
}

const strict = { allowInsecure: false, allowPrivateAddresses: false };

async function openSender() {
  const { queried, server } = await startNameServer();
  const sender = createSender(strict, {
    lookups: guardedLookups(strict, askNameServers([server])),
  });
  closers.push(sender.close);
  const secrets = [createWebhookSecret()];
  const send = (account: string, host: string): Promise<SendOutcome> =>
    sender.send({
      ...{ account, url: `https://${host}/hooks`, id: 'evt_1', secrets, body: '{}' },
      timestampSeconds: 1_800_000_000,
    });
  return { queried, send };
}

const leadsInside = { kind: 'blocked', detail: 'the name does not resolve to a public address' };

it('names without an answer hold up neither the lookups of others nor their threads', async () => {
  const { queried, send } = await openSender();
  const ended: SendOutcome[] = [];
  const hosts = Array.from({ length: 16 }, (_, index) => `silent-${index}.example`);
  const attempts = hosts.flatMap((host) =>
    Array.from({ length: 16 }, async () => void ended.push(await send('acct_slow', host))),
  );
  // Each host is looked up for two address families, however many attempts wait for it.
  await eventually('all names are queried', 20_000, () => queried.length >= 32 || undefined);
  expect(await send('acct_other', 'quick.example')).toMatchObject(leadsInside);
  await Promise.all([readFile(new URL(import.meta.url)), lookup('localhost')]);
  expect(ended).toEqual([]);
  expect(queried.filter((label) => label.startsWith('silent'))).toHaveLength(32);

  await Promise.all(attempts);
  // The same text as for a name that leads inside, so that callers cannot discover which names exist.
  const reason = 'the host does not resolve to a public address';
  expect(ended).toEqual(Array(256).fill({ kind: 'blocked', reason, detail: 'ETIMEOUT' }));
  expect(await send('acct_slow', 'quick.example')).toMatchObject(leadsInside);
});

it('at most 32 hosts of an account are looked up at once, without holding up others', async () => {
  const { queried, send } = await openSender();
  const ended: SendOutcome[] = [];
  const attempts = Array.from({ length: 100 }, async (_, index) => {
    ended.push(await send('acct_slow', `silent-${index}.example`));
  });
  await eventually('the excess lookups end', 20_000, () => ended.length === 68 || undefined);
  expect(await send('acct_other', 'quick.example')).toMatchObject(leadsInside);
  expect(new Set(queried)).toEqual(
    new Set(['quick', ...Array.from({ length: 32 }, (_, index) => `silent-${index}`)]),
  );
  await Promise.all(attempts);
});
