import { type LookupAddress, type LookupAllOptions, lookup as systemLookup } from 'node:dns';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';

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
const connectTimeoutMs = 5_000;

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
 * Checks a URL when an endpoint is registered, and again at each attempt, for the policy
 * may have changed. It says nothing of where the name leads: that is checked when
 * connecting, each time, because names are pointed elsewhere after they were checked.
 */
export function checkWebhookUrl(
  url: string,
  policy: UrlPolicy,
): undefined | { readonly expected: string } {
  if (url.length > maxUrlLength) return { expected: `at most ${maxUrlLength} characters` };
  if (/\s/.test(url) || !URL.canParse(url)) return { expected: 'an absolute URL' };
  const { protocol, username, password, port, hostname } = new URL(url);
  if (protocol !== 'https:' && !(policy.allowInsecure && protocol === 'http:')) {
    return { expected: policy.allowInsecure ? 'an https or http URL' : 'an https URL' };
  }
  if (username !== '' || password !== '') {
    return { expected: 'a URL without user name and password' };
  }
  if (url.includes('#')) return { expected: 'a URL without a fragment' };
  if (!policy.allowInsecure && !securePorts.includes(port)) {
    return { expected: 'port 443 or 8443' };
  }
  // The URL parser has turned every spelling of an IPv4 address (0x7f.1) into the usual one.
  if (!policy.allowPrivateAddresses && isIP(bare(hostname)) !== 0) {
    return { expected: 'a host name, not an IP address' };
  }
  return undefined;
}

function bare(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
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

type LookupAll = (
  hostname: string,
  options: LookupAllOptions,
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/** A DNS lookup that drops every address the policy forbids, and fails if none is left. */
export function guardedLookup(policy: UrlPolicy, lookup: LookupAll = systemLookup): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(new BlockedAddressError(error.code ?? error.message), []);
      const [first, ...others] = addresses.filter(({ address }) => isAllowed(address, policy));
      if (first === undefined) {
        return callback(new BlockedAddressError('the name leads to no public address'), []);
      }
      if (options.all === true) callback(null, [first, ...others]);
      else callback(null, first.address, first.family);
    });
  };
}

/**
 * A connector for undici that reaches only what the policy allows. Node asks no lookup for
 * an IP address, so that is checked first; names go through the guarded lookup; and the
 * socket tells in the end where it really leads, before TLS or HTTP writes a byte to it.
 */
export function guardedConnector(
  policy: UrlPolicy,
  lookup: LookupFunction = guardedLookup(policy),
): buildConnector.connector {
  const connectTcp = buildConnector({ lookup, timeout: connectTimeoutMs });
  const connectTls = buildConnector({ timeout: connectTimeoutMs });
  return (target, callback) => {
    const secure = target.protocol === 'https:';
    if (isIP(target.hostname) !== 0 && !isAllowed(target.hostname, policy)) {
      callback(new BlockedAddressError('the address is not public'), null);
      return;
    }
    const port = target.port === '' ? (secure ? '443' : '80') : target.port;
    connectTcp({ ...target, protocol: 'http:', port }, (error, socket) => {
      if (error !== null) return callback(error, null);
      if (!isAllowed(socket.remoteAddress ?? '', policy)) {
        socket.destroy();
        return callback(new BlockedAddressError('the connection leads to no public address'), null);
      }
      if (secure) upgrade(socket);
      else callback(null, socket);
    });

    function upgrade(httpSocket: Socket): void {
      connectTls({ ...target, port, httpSocket }, callback);
    }
  };
}
