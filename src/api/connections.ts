import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { networkOf, type TrustedProxies } from './clientAddress.js';

/** Connections that have presented an API key or a rail's signature, and those of trusted proxies. */
export const trusted = new WeakSet<Duplex>();

/**
 * Returns a function that marks the connection of an authenticated request as trusted, and returns a callback
 * for the end of that request. An account keeps at most `maximum` of them: another one closes the one idle
 * for longest. Connections of proxies belong to no account.
 */
export function trackAccountConnections(maximum: number, proxies: TrustedProxies) {
  const accounts = new Map<string, Set<Socket>>();
  const requests = new WeakMap<Socket, number>();
  const keep = (socket: Socket, accountId: string) => {
    const kept = accounts.get(accountId) ?? new Set();
    accounts.set(accountId, kept.add(socket));
    trusted.add(socket);
    socket.once('close', () => {
      kept.delete(socket);
      if (kept.size === 0) accounts.delete(accountId);
    });
    if (kept.size <= maximum) return;
    [...kept].find((each) => requests.get(each) === 0 && !each.destroyed)?.destroy();
  };
  return (socket: Socket, accountId: string): (() => void) => {
    if (socket.destroyed || proxies.includes(socket.remoteAddress)) return () => undefined;
    const before = requests.get(socket);
    requests.set(socket, (before ?? 0) + 1);
    if (before === undefined) keep(socket, accountId);
    return () => {
      requests.set(socket, (requests.get(socket) ?? 0) - 1);
      // Moves the connection to the end of the set, as the one that became idle last.
      const kept = accounts.get(accountId);
      if (kept?.delete(socket)) kept.add(socket);
    };
  };
}

/**
 * Returns a function that accepts a new connection and, at a limit, closes the oldest anonymous one: from the
 * same address if that has too many, or from any address if the process has as many as it may.
 */
export function admitConnections(
  limits: { readonly connections: number; readonly anonymous: number },
  proxies: TrustedProxies,
  open: { readonly size: number },
): (socket: Socket) => void {
  const anonymous = new Map<string, Set<Socket>>();
  const prune = (sockets: Set<Socket>, maximum: number) => {
    for (const socket of sockets) if (trusted.has(socket)) sockets.delete(socket);
    const [oldest] = sockets;
    if (sockets.size > maximum) oldest?.destroy();
    return sockets.size > maximum;
  };
  return (socket) => {
    if (proxies.includes(socket.remoteAddress)) trusted.add(socket);
    const network = networkOf(socket.remoteAddress ?? '');
    const known = anonymous.get(network) ?? new Set();
    anonymous.set(network, known.add(socket));
    socket.once('close', () => {
      known.delete(socket);
      if (known.size === 0 && anonymous.get(network) === known) anonymous.delete(network);
    });
    if (known.size > limits.anonymous) prune(known, limits.anonymous);
    if (open.size >= limits.connections) [...anonymous.values()].some((each) => prune(each, 0));
  };
}
