import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { networkOf, type TrustedProxies } from './clientAddress.js';

/** Connections that have shown a key or a rail's signature, and those of trusted proxies. */
export const customers = new WeakSet<Duplex>();

/**
 * Lets every connection in, for which the oldest stranger goes: of the same address if it has too
 * many, of any if there are as many connections as there may be.
 */
export function admitConnections(
  limits: { readonly connections: number; readonly anonymous: number },
  proxies: TrustedProxies,
  open: { readonly size: number },
): (socket: Socket) => void {
  const anonymous = new Map<string, Set<Socket>>();
  const cut = (sockets: Set<Socket>, most: number) => {
    for (const socket of sockets) if (customers.has(socket)) sockets.delete(socket);
    const [oldest] = sockets;
    if (sockets.size > most) oldest?.destroy();
    return sockets.size > most;
  };
  return (socket) => {
    if (proxies.includes(socket.remoteAddress)) customers.add(socket);
    const network = networkOf(socket.remoteAddress ?? '');
    const known = anonymous.get(network) ?? new Set();
    anonymous.set(network, known.add(socket));
    socket.once('close', () => {
      known.delete(socket);
      if (known.size === 0 && anonymous.get(network) === known) anonymous.delete(network);
    });
    if (known.size > limits.anonymous) cut(known, limits.anonymous);
    if (open.size >= limits.connections) [...anonymous.values()].some((each) => cut(each, 0));
  };
}
