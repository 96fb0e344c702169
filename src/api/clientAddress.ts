import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** Unwraps an IPv4 address, which a dual-stack socket reports inside an IPv6 one. */
const plain = (address = '') => address.replace(/^::ffff:(?=\d+\.)/i, '');

/** Returns a function that tells whether an address is in these addresses or subnets (`10.0.0.0/8`). */
export function inNetworks(networks: readonly string[]) {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', bits = isIP(network) === 6 ? '128' : '32'] = network.split('/');
    list.addSubnet(address, Number.parseInt(bits, 10), isIP(address) === 6 ? 'ipv6' : 'ipv4');
  }
  return (address?: string) => {
    const family = isIP(plain(address));
    return family !== 0 && list.check(plain(address), family === 6 ? 'ipv6' : 'ipv4');
  };
}

/** @param networks addresses and subnets of the trusted proxies */
export function trustProxies(networks: readonly string[]) {
  const includes = inNetworks(networks);
  /** Returns the sender's address: as reported by the last trusted proxy, or else the connection's peer. */
  const clientOf = ({ socket, headers }: Pick<IncomingMessage, 'socket' | 'headers'>): string => {
    const forwarded = String(headers['x-forwarded-for'] ?? '').split(',');
    let address = plain(socket.remoteAddress);
    // From the nearest proxy to the farthest: entries beyond the first untrusted one may be forged.
    while (includes(address)) {
      const before = plain(forwarded.pop()?.trim());
      if (isIP(before) === 0) break;
      address = before;
    }
    return address;
  };
  return { includes, clientOf };
}
export type TrustedProxies = ReturnType<typeof trustProxies>;

/** Returns the network that counts as one sender: an IPv6 client usually controls a whole /64. */
export function networkOf(sent: string): string {
  const address = plain(sent);
  return isIP(address) === 6 ? ipaddr.IPv6.parse(address).parts.slice(0, 4).join(':') : address;
}
