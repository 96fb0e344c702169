import { once } from 'node:events';
import net, { createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  BlockedAddressError,
  expectedOfWebhookUrl,
  guardedConnector,
  guardedLookups,
  isOwnMachine,
} from '../../src/webhooks/guard.js';

const strict = { allowInsecure: false, allowPrivateAddresses: false };
const insecure = { allowInsecure: true, allowPrivateAddresses: false };
const open = { allowInsecure: true, allowPrivateAddresses: true };

/** Every spelling that the URL parser accepts for an address that is not public. */
const privateHosts = [
  '127.0.0.1',
  '127.1',
  '0x7f.1',
  '0177.0.0.1',
  '2130706433',
  '0',
  '10.0.0.1',
  '100.64.0.1',
  '169.254.169.254',
  '172.16.0.1',
  '192.168.1.1',
  '[::]',
  '[::1]',
  '[::127.0.0.1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[64:ff9b::7f00:1]',
  '[2002:7f00:1::]',
  '[fc00::1]',
  '[fe80::1]',
  // Cloud metadata and host addresses, and spellings that embed them (IPv4-mapped, NAT64, 6to4, Teredo).
  '168.63.129.16',
  '[::ffff:168.63.129.16]',
  '[64:ff9b::a83f:8110]',
  '[64:ff9b::a9fe:a9fe]',
  '[64:ff9b:1::a9fe:a9fe]',
  '[2002:a9fe:a9fe::]',
  '[2001:0:a9fe:a9fe::]',
  '169.254.0.23',
  '169.254.170.2',
  '100.100.100.200',
  '192.0.0.192',
  '198.18.0.1',
  '[fd00:ec2::254]',
  '[fd20:ce::254]',
  '[fec0::1]',
];

describe('expectedOfWebhookUrl', () => {
  it.each([
    'https://example.com/hooks?a=1',
    'https://example.com:8443/',
    'https://bücher.example/',
  ])('accepts %s', (url) => {
    expect(expectedOfWebhookUrl(url, strict)).toBeUndefined();
  });

  it.each([
    ['http://example.com/', 'an https URL'],
    ['ftp://example.com/', 'an https URL'],
    ['/hooks', 'an absolute URL'],
    ['https://user@example.com/', 'user name'],
    ['https://:word@example.com/', 'password'],
    ['https://example.com/#', 'fragment'],
    ['https://example.com:22/', 'a URL with port 443 or 8443'],
    ['https://93.184.216.34/', 'not an IP address'],
    [`https://example.com/${'x'.repeat(2_048)}`, '2048 characters'],
  ])('refuses %s', (url, expected) => {
    expect(expectedOfWebhookUrl(url, strict)).toContain(expected);
  });

  it.each(privateHosts)('refuses the literal %s', (host) => {
    expect(expectedOfWebhookUrl(`https://${host}/`, strict)).toContain('not an IP address');
  });

  it('lets the local stack use http, any port and addresses, and nothing more', () => {
    expect(expectedOfWebhookUrl('http://127.0.0.1:8080/hooks', open)).toBeUndefined();
    expect(expectedOfWebhookUrl('http://example.com:8080/', insecure)).toBeUndefined();
    expect(expectedOfWebhookUrl('http://127.0.0.1:8080/', insecure)).toBeDefined();
    expect(expectedOfWebhookUrl('ftp://127.0.0.1/', open)).toBeDefined();
    expect(expectedOfWebhookUrl('http://user@localhost/', open)).toBeDefined();
  });
});

describe('isOwnMachine', () => {
  it.each([
    ...['http://localhost:9000/hooks', 'http://127.0.0.1/', 'http://127.8.8.8/', 'http://0x7f.1/'],
    ...['https://[::1]:9/', 'http://[::ffff:127.0.0.1]/'],
  ])('is true for %s, where the policy allows it', (url) => {
    expect(isOwnMachine(url, open)).toBe(true);
    expect(isOwnMachine(url, insecure)).toBe(false);
  });

  it.each([
    ...['http://10.0.0.1/', 'http://0.0.0.0/', 'http://[::]/', 'https://example.com/127.0.0.1'],
    ...['http://localhost.example.com/', 'http://127.0.0.1.example.com/', 'http://[2001:db8::1]/'],
  ])('is false for %s', (url) => {
    expect(isOwnMachine(url, open)).toBe(false);
  });
});

/** Lookups that resolve every name to loopback. */
const loopback = (policy: typeof strict) =>
  guardedLookups(policy, async () => [{ address: '127.0.0.1', family: 4 }])('acct_1');

describe('guardedConnector', () => {
  const seen = { connections: 0, bytes: Buffer.alloc(0) };
  let server: Server;
  let port: string;

  beforeAll(async () => {
    server = createServer((socket) => {
      seen.connections += 1;
      socket.on('error', () => socket.destroy());
      socket.once('data', (chunk) => {
        seen.bytes = Buffer.concat([seen.bytes, chunk]);
        socket.destroy();
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    port = typeof address === 'object' ? String(address?.port) : '';
  });

  beforeEach(() => {
    seen.connections = 0;
    seen.bytes = Buffer.alloc(0);
  });

  afterAll(async () => {
    server.close();
    await once(server, 'close');
  });

  function connect(
    connector: ReturnType<typeof guardedConnector>,
    hostname: string,
    protocol = 'http:',
  ): Promise<Socket> {
    return new Promise((resolve, reject) => {
      connector({ hostname, host: hostname, protocol, port }, (error, socket) => {
        if (error === null) resolve(socket);
        else reject(error);
      });
    });
  }

  it.each(privateHosts)('does not even open a connection to the literal %s', async (host) => {
    // The host as undici passes it: in the URL parser's spelling, without brackets.
    const { hostname } = new URL(`http://${host}/`);
    await expect(
      connect(guardedConnector(insecure, loopback(insecure)), hostname.replace(/[[\]]/g, '')),
    ).rejects.toThrow(BlockedAddressError);
    expect(seen.connections).toBe(0);
  });

  it.each(['http:', 'https:'])(
    'does not connect over %s to a name that resolves to loopback',
    async (protocol) => {
      await expect(
        connect(guardedConnector(insecure, loopback(insecure)), 'inside.example', protocol),
      ).rejects.toThrow(BlockedAddressError);
      expect(seen.connections).toBe(0);
    },
  );

  // DNS rebinding: the name is pointed elsewhere between check and connection, so the second answer
  // reaches the socket without having passed the filter.
  it.each(['http:', 'https:'])(
    'sends no byte over %s to a name that was rebound',
    async (protocol) => {
      const connected = once(server, 'connection');
      const connector = guardedConnector(insecure, (_, options, callback) => {
        if (options.all === true) callback(null, [{ address: '127.0.0.1', family: 4 }]);
        else callback(null, '127.0.0.1', 4);
      });
      await expect(connect(connector, 'rebound.example', protocol)).rejects.toThrow(
        BlockedAddressError,
      );
      const [socket]: Socket[] = await connected;
      if (socket?.closed === false) await once(socket, 'close');
      expect(seen.connections).toBe(1);
      expect(seen.bytes).toHaveLength(0);
    },
  );

  it('connects to loopback where the policy allows it, and starts TLS for https', async () => {
    const lookup = guardedLookups(open)('acct_1');
    const socket = await connect(guardedConnector(open, lookup), 'localhost');
    expect(socket.remoteAddress).toBe('127.0.0.1');
    socket.destroy();
    await expect(connect(guardedConnector(open, lookup), 'localhost', 'https:')).rejects.toThrow();
    // A TLS handshake record with the requested name (RFC 8446, RFC 6066).
    expect(seen.bytes[0]).toBe(22);
    expect(seen.bytes.includes('localhost')).toBe(true);
  });

  // Without IPv6, the address before the last one would otherwise get Node's 250 ms and the last one fail at once.
  it('gives each of several addresses time for a distant receiver', async () => {
    const connecting = vi.spyOn(net, 'connect');
    const socket = await connect(
      guardedConnector(open, guardedLookups(open)('acct_1')),
      'localhost',
    );
    socket.destroy();
    const [options] = connecting.mock.lastCall ?? [];
    expect(options).toMatchObject({ autoSelectFamilyAttemptTimeout: 2_000 });
    connecting.mockRestore();
  });
});

describe('guardedLookups', () => {
  const answers = [
    { address: '127.0.0.1', family: 4 },
    { address: '93.184.216.34', family: 4 },
    { address: '::ffff:10.0.0.1', family: 6 },
    { address: '2606:2800:220:1::1', family: 6 },
  ];

  function resolved(all: boolean, found = answers): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const lookup = guardedLookups(strict, async () => found)('acct_1');
      lookup('example.com', { all }, (error, address) =>
        error ? reject(error) : resolve(address),
      );
    });
  }

  it('keeps only the public addresses of a name', async () => {
    await expect(resolved(true)).resolves.toEqual([answers[1], answers[3]]);
    await expect(resolved(false)).resolves.toBe('93.184.216.34');
  });

  it.each([
    ['169.254.169.254', 4],
    ['168.63.129.16', 4],
    ['100.100.100.200', 4],
    ['192.0.0.192', 4],
    ['::ffff:168.63.129.16', 6],
    ['64:ff9b::a9fe:a9fe', 6],
    ['fd00:ec2::254', 6],
  ])('drops %s, an internal address of a cloud provider', async (address, family) => {
    await expect(resolved(false, [{ address, family }])).rejects.toThrow(BlockedAddressError);
    await expect(resolved(false, [{ address: '168.63.129.17', family: 4 }])).resolves.toBe(
      '168.63.129.17',
    );
  });

  it('fails with the same message for an unknown name and for an internal one', async () => {
    const absent = new Promise((_, reject) => {
      const error = Object.assign(new Error('queryA ENOTFOUND'), { code: 'ENOTFOUND' });
      const lookup = guardedLookups(strict, () => Promise.reject(error))('acct_1');
      lookup('example.com', {}, reject);
    });
    const [ofAbsent, ofInternal] = await Promise.allSettled([absent, resolved(false, [])]);
    expect(ofAbsent).toMatchObject({ reason: { detail: 'ENOTFOUND' } });
    expect(ofInternal).toMatchObject({
      reason: { detail: expect.stringContaining('does not resolve to') },
    });
    const messages = [ofAbsent, ofInternal].map(
      (outcome) => outcome.status === 'rejected' && outcome.reason.message,
    );
    expect(messages[0]).toBe(messages[1]);
  });

  it('fails when no address is left', async () => {
    await expect(resolved(true, answers.slice(0, 1))).rejects.toThrow(BlockedAddressError);
    await expect(resolved(false, [])).rejects.toThrow(BlockedAddressError);
  });
});
