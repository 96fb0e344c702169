import type { LookupAddress } from 'node:dns';
import { Resolver, lookup as systemLookup } from 'node:dns/promises';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';
import { createKeyedLimit } from '../keyedLimit.js';

/**
 * What webhook receivers may be. Both are off in production: a customer must not be able
 * to make this service call an address inside its own network (OWASP API7, SSRF).
 */
export type UrlPolicy = {
  /** Takes http as well as https, and any port. */
  readonly allowInsecure: boolean;
  /** Takes IP addresses as hosts, and connects to loopback and private networks. */
  readonly allowPrivateAddresses: boolean;
};

// What every proxy and browser carries; a longer URL holds data that belongs in the body.
const maxUrlLength = 2_048;
// The only ports where an https receiver is to be expected; others are internal services.
const securePorts = ['', '443', '8443'];
// A receiver that takes longer for TCP or TLS alone has no time left to answer in.
export const connectTimeoutMs = 5_000;
// Two name servers that are asked one after the other leave time to connect in.
const nameServerTimeoutMs = 2_000;
// Twice as many as an account may have endpoints: hosts of deleted ones are still being asked for.
const hostsOfAccount = 32;

/**
 * The connection was not made, or was closed before a byte was sent: the host has no address, or
 * none that the policy allows. The message is one for all of these, since integrators read it: it
 * must not say which names there are in our own network. The detail is for our log.
 */
export class BlockedAddressError extends Error {
  override readonly name = 'BlockedAddressError';
  readonly detail: string;

  constructor(detail: string) {
    super('the host leads to no public address');
    this.detail = detail;
  }
}

/**
 * What a URL ought to have been, or undefined if it is well: asked when an endpoint is registered,
 * and again at each attempt, for the policy may have changed. It says nothing of where the name
 * leads: that is checked when connecting, each time, because names are pointed elsewhere after
 * they were checked.
 */
export function expectedOfWebhookUrl(url: string, policy: UrlPolicy): string | undefined {
  if (url.length > maxUrlLength) return `at most ${maxUrlLength} characters`;
  if (/\s/.test(url) || !URL.canParse(url)) {
    return 'an absolute URL, such as https://example.com/webhooks';
  }
  const { protocol, username, password, port, hostname } = new URL(url);
  if (protocol !== 'https:' && !(policy.allowInsecure && protocol === 'http:')) {
    return policy.allowInsecure ? 'an https or http URL' : 'an https URL';
  }
  if (username !== '' || password !== '') return 'a URL without user name and password';
  if (url.includes('#')) return 'a URL without a fragment';
  if (!policy.allowInsecure && !securePorts.includes(port)) return 'port 443 or 8443';
  // The URL parser has turned every spelling of an IPv4 address (0x7f.1) into the usual one.
  if (!policy.allowPrivateAddresses && isIP(bare(hostname)) !== 0) {
    return 'a host name, not an IP address';
  }
  return undefined;
}

function bare(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
}

/**
 * Whether a URL leads to this machine by its host's very name, under a policy that allows that: then
 * its receiver belongs to the person who runs the service.
 */
export function isOwnMachine(url: string, policy: UrlPolicy): boolean {
  const host = bare(new URL(url).hostname);
  const isLoopback = ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback';
  return policy.allowPrivateAddresses && (host === 'localhost' || isLoopback);
}

// All the IPv6 unicast space that IANA has given out (RFC 4291, section 2.4); the library
// counts as unicast whatever it has no name for, such as the old form ::127.0.0.1.
const globalIpv6 = ipaddr.IPv6.parseCIDR('2000::/3');
// The wire server of a cloud (Azure): a public address by its number that leads to the host of the
// virtual machine. Those of other clouds are link-local, shared (100.64.0.0/10) or reserved.
const wireServer = '168.63.129.16';

/** Public unicast only; an IPv4 address mapped into IPv6 counts as what it stands for. */
function isAllowed(address: string, policy: UrlPolicy): boolean {
  if (policy.allowPrivateAddresses) return true;
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  const global = parsed instanceof ipaddr.IPv4 || parsed.match(globalIpv6);
  return global && parsed.range() === 'unicast' && parsed.toString() !== wireServer;
}

/** Finds all addresses of a host. */
type Lookup = (hostname: string) => Promise<readonly LookupAddress[]>;

/**
 * Asks the name servers, by default those of the system. The system's own look-up would hold one
 * of the few threads of the process until there is an answer, and the connections to the bank and
 * to the database need those too.
 */
export function askNameServers(servers?: readonly string[]): Lookup {
  return async (hostname) => {
    // Each time a new one, which reads what the system's name servers are by now.
    const resolver = new Resolver({ timeout: nameServerTimeoutMs, tries: 1 });
    if (servers !== undefined) resolver.setServers(servers);
    const [v4, v6] = await Promise.allSettled([
      resolver.resolve4(hostname),
      resolver.resolve6(hostname),
    ]);
    if (v4.status === 'rejected' && v6.status === 'rejected') throw v4.reason;
    return [
      ...(v4.status === 'fulfilled' ? v4.value.map((address) => ({ address, family: 4 })) : []),
      ...(v6.status === 'fulfilled' ? v6.value.map((address) => ({ address, family: 6 })) : []),
    ];
  };
}

/** For the local stack: names of the hosts file too, which only the system's own look-up reads. */
async function askLocally(hostname: string): ReturnType<Lookup> {
  const inFile = () => systemLookup(hostname, { all: true });
  if (!hostname.includes('.')) return inFile();
  return askNameServers()(hostname).catch((error: unknown) => {
    // Nothing else: what name servers are silent about would hold a thread after all.
    if (['ENOTFOUND', 'ECONNREFUSED'].includes(codeOf(error))) return inFile();
    throw error;
  });
}

/**
 * Lookups for undici, which drop every address the policy forbids and fail if none is left. Of an
 * account each host is looked up once at a time, and so many hosts at once: whose name servers do
 * not answer keeps nobody else waiting.
 */
export function guardedLookups(
  policy: UrlPolicy,
  lookup = policy.allowPrivateAddresses ? askLocally : askNameServers(),
): (account: string) => LookupFunction {
  const limit = createKeyedLimit(hostsOfAccount, 0);
  const asked = new Map<string, ReturnType<Lookup>>();
  const find = (account: string, hostname: string): ReturnType<Lookup> => {
    const key = `${account} ${hostname}`;
    const found = asked.get(key) ?? limit(account, () => lookup(hostname));
    if (found === undefined) return Promise.reject(new Error('too many hosts of the account'));
    asked.set(key, found);
    const forget = () => void asked.delete(key);
    found.then(forget, forget);
    return found;
  };
  return (account) => (hostname, options, callback) => {
    const give = (addresses: readonly LookupAddress[]) => {
      const [first, ...others] = addresses.filter(({ address }) => isAllowed(address, policy));
      if (first === undefined) fail('the name leads to no public address');
      else if (options.all === true) callback(null, [first, ...others]);
      else callback(null, first.address, first.family);
    };
    const fail = (detail: string) => callback(new BlockedAddressError(detail), []);
    find(account, hostname).then(give, (error: unknown) => fail(codeOf(error)));
  };
}

function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message;
}

/** Opens a connection to an address through a proxy. */
export type Tunnel = (address: string, port: string) => Promise<Socket>;

/**
 * A connector for undici that reaches only what the policy allows. Node asks no lookup for
 * an IP address, so that is checked first; names go through the guarded lookup; and the
 * socket shows in the end where it really leads, before TLS or HTTP writes a byte to it. A tunnel gets
 * the address that was checked and no name, so that a proxy is not led elsewhere either.
 */
export function guardedConnector(
  policy: UrlPolicy,
  lookup: LookupFunction,
  tunnel?: Tunnel,
): buildConnector.connector {
  const connectTcp =
    tunnel === undefined ? directConnector(policy, lookup) : tunnelConnector(lookup, tunnel);
  const connectTls = buildConnector({ timeout: connectTimeoutMs });
  return (target, callback) => {
    const secure = target.protocol === 'https:';
    if (isIP(target.hostname) !== 0 && !isAllowed(target.hostname, policy)) {
      callback(new BlockedAddressError('the address is not public'), null);
      return;
    }
    const port = target.port === '' ? (secure ? '443' : '80') : target.port;
    connectTcp({ ...target, protocol: 'http:', port }, (error, socket) => {
      if (error !== null) callback(error, null);
      else if (secure) connectTls({ ...target, port, httpSocket: socket }, callback);
      else callback(null, socket);
    });
  };
}

function directConnector(policy: UrlPolicy, lookup: LookupFunction): buildConnector.connector {
  const connectTcp = buildConnector({ lookup, timeout: connectTimeoutMs });
  return (target, callback) =>
    connectTcp(target, (error, socket) => {
      if (error !== null) return callback(error, null);
      if (isAllowed(socket.remoteAddress ?? '', policy)) return callback(null, socket);
      socket.destroy();
      callback(new BlockedAddressError('the connection leads to no public address'), null);
    });
}

function tunnelConnector(lookup: LookupFunction, tunnel: Tunnel): buildConnector.connector {
  return ({ hostname, port }, callback) => {
    const give = (socket: Socket) => callback(null, socket);
    const fail = (error: unknown) =>
      callback(error instanceof Error ? error : new Error(String(error)), null);
    const connect = (address: string) => void tunnel(address, port).then(give, fail);
    if (isIP(hostname) !== 0) return connect(hostname);
    lookup(hostname, { all: false }, (error, address) => {
      if (error === null && typeof address === 'string') connect(address);
      else fail(error ?? 'a single address was asked for');
    });
  };
}
