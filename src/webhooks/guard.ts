import type { LookupAddress } from 'node:dns';
import { Resolver, lookup as systemLookup } from 'node:dns/promises';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';
import { createKeyedLimit } from '../keyedLimit.js';

/**
 * Restrictions on the URLs of webhook receivers. Both settings are off in production: a customer must not
 * be able to make this service call an address inside its own network (OWASP API7, SSRF).
 */
export type UrlPolicy = {
  /** Accepts http as well as https, and any port. */
  readonly allowInsecure: boolean;
  /** Accepts IP addresses as hosts, and connects to loopback and private networks. */
  readonly allowPrivateAddresses: boolean;
};

// Maximum length that every proxy and browser supports. A longer URL contains data that belongs in the body.
const maxUrlLength = 2_048;
// The only ports on which https receivers are expected; other ports are likely internal services.
const securePorts = ['', '443', '8443'];
// Timeout of TCP and of TLS each. A receiver that needs longer would have no time left to answer.
export const connectTimeoutMs = 5_000;
// Timeout of each address but the last. With Node's default of 250 ms, a receiver on another continent with an
// IPv6 address is never reached from a network without IPv6. Two that do not answer leave time for a third.
const addressTimeoutMs = 2_000;
// Timeout of one name server. Even if two are queried one after the other, there is time left to connect.
const nameServerTimeoutMs = 2_000;
// Maximum number of hosts that an account resolves at once. It is twice the maximum number of endpoints,
// because look-ups of deleted endpoints may still be in flight.
const hostsOfAccount = 32;

/**
 * The connection was not made, or was closed before a byte was sent, because the host has no address or
 * none that the policy allows. Integrators read the message, so it is the same in all these cases and does
 * not reveal which names exist in our network. The detail is for our log only.
 */
export class BlockedAddressError extends Error {
  override readonly name = 'BlockedAddressError';
  readonly detail: string;

  constructor(detail: string) {
    super('the host does not resolve to a public address');
    this.detail = detail;
  }
}

/**
 * Returns what a webhook URL has to be, or undefined if it is valid. Checked when an endpoint is
 * registered and again at each attempt, because the policy may have changed. The addresses of the host are
 * checked at each connection instead, because a name can be pointed elsewhere after a check (DNS rebinding).
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
  if (!policy.allowInsecure && !securePorts.includes(port)) return 'a URL with port 443 or 8443';
  // The URL parser has normalised every notation of an IPv4 address, such as 0x7f.1.
  if (!policy.allowPrivateAddresses && isIP(bare(hostname)) !== 0) {
    return 'a host name, not an IP address';
  }
  return undefined;
}

function bare(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
}

/**
 * Whether the host of a URL is localhost or a loopback address and the policy allows that. Then the
 * receiver belongs to the person who runs the service.
 */
export function isOwnMachine(url: string, policy: UrlPolicy): boolean {
  const host = bare(new URL(url).hostname);
  const isLoopback = ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback';
  return policy.allowPrivateAddresses && (host === 'localhost' || isLoopback);
}

// The only IPv6 global unicast space that IANA has allocated (RFC 4291, section 2.4). The check is needed
// because ipaddr.js classifies ranges it does not know as unicast, such as the deprecated ::127.0.0.1.
const globalIpv6 = ipaddr.IPv6.parseCIDR('2000::/3');
// Azure's wire server: an address in public space that leads to the host of the virtual machine. Those of
// other clouds are link-local, shared (100.64.0.0/10) or reserved.
const wireServer = '168.63.129.16';

/** Allows public unicast addresses only. An IPv4-mapped IPv6 address is checked as the IPv4 address. */
function isAllowed(address: string, policy: UrlPolicy): boolean {
  if (policy.allowPrivateAddresses) return true;
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  const global = parsed instanceof ipaddr.IPv4 || parsed.match(globalIpv6);
  return global && parsed.range() === 'unicast' && parsed.toString() !== wireServer;
}

/** Resolves all addresses of a host. */
type Lookup = (hostname: string) => Promise<readonly LookupAddress[]>;

/**
 * Queries the name servers, by default those of the system. The system's own look-up (getaddrinfo) would
 * block one of the process's few threads until it is answered; connections to the bank and to the database
 * need those threads too.
 */
export function askNameServers(servers?: readonly string[]): Lookup {
  return async (hostname) => {
    // A new resolver each time reads the current name servers of the system.
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

/** For local development: also resolves names in the hosts file, which only the system's look-up reads. */
async function lookupLocally(hostname: string): ReturnType<Lookup> {
  const inFile = () => systemLookup(hostname, { all: true });
  if (!hostname.includes('.')) return inFile();
  return askNameServers()(hostname).catch((error: unknown) => {
    // Only for these errors: after a timeout, the system's look-up would block a thread as well.
    if (['ENOTFOUND', 'ECONNREFUSED'].includes(codeOf(error))) return inFile();
    throw error;
  });
}

/**
 * Makes lookups for undici that remove addresses forbidden by the policy and fail if none remains. Callers
 * of one account share one look-up per host, and the number of concurrent look-ups per account is limited,
 * so that an account whose name servers do not answer does not delay others.
 */
export function guardedLookups(
  policy: UrlPolicy,
  lookup = policy.allowPrivateAddresses ? lookupLocally : askNameServers(),
): (account: string) => LookupFunction {
  const limit = createKeyedLimit(hostsOfAccount, 0);
  const inFlight = new Map<string, ReturnType<Lookup>>();
  const find = (account: string, hostname: string): ReturnType<Lookup> => {
    const key = `${account} ${hostname}`;
    const found = inFlight.get(key) ?? limit(account, () => lookup(hostname));
    if (found === undefined) return Promise.reject(new Error('too many hosts of the account'));
    inFlight.set(key, found);
    const forget = () => void inFlight.delete(key);
    found.then(forget, forget);
    return found;
  };
  return (account) => (hostname, options, callback) => {
    const succeed = (addresses: readonly LookupAddress[]) => {
      const [first, ...others] = addresses.filter(({ address }) => isAllowed(address, policy));
      if (first === undefined) fail('the name does not resolve to a public address');
      else if (options.all === true) callback(null, [first, ...others]);
      else callback(null, first.address, first.family);
    };
    const fail = (detail: string) => callback(new BlockedAddressError(detail), []);
    find(account, hostname).then(succeed, (error: unknown) => fail(codeOf(error)));
  };
}

function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message;
}

/** Opens a connection to an address through a proxy. */
export type Tunnel = (address: string, port: string) => Promise<Socket>;

/**
 * Makes a connector for undici that connects only to addresses the policy allows. IP addresses are checked
 * first, because Node calls no lookup for them. Names are resolved by the guarded lookup. Finally the
 * socket's remote address is checked before TLS or HTTP sends a byte. A tunnel is given the checked address
 * instead of the name, so that the proxy cannot resolve the name to another address.
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
  const connectTcp = buildConnector({
    lookup,
    timeout: connectTimeoutMs,
    autoSelectFamilyAttemptTimeout: addressTimeoutMs,
  });
  return (target, callback) =>
    connectTcp(target, (error, socket) => {
      if (error !== null) return callback(error, null);
      if (isAllowed(socket.remoteAddress ?? '', policy)) return callback(null, socket);
      socket.destroy();
      callback(new BlockedAddressError('the connection is not to a public address'), null);
    });
}

function tunnelConnector(lookup: LookupFunction, tunnel: Tunnel): buildConnector.connector {
  return ({ hostname, port }, callback) => {
    const succeed = (socket: Socket) => callback(null, socket);
    const fail = (error: unknown) =>
      callback(error instanceof Error ? error : new Error(String(error)), null);
    const connect = (address: string) => void tunnel(address, port).then(succeed, fail);
    if (isIP(hostname) !== 0) return connect(hostname);
    lookup(hostname, { all: false }, (error, address) => {
      if (error === null && typeof address === 'string') connect(address);
      else fail(error ?? 'a single address was asked for');
    });
  };
}
