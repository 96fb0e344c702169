import { connect, createServer, type Socket } from 'node:net';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

export type ConnectionBalancer = {
  readonly port: number;
  /** Adds the server on this port to the rotation for new connections. */
  readonly add: (port: number) => void;
  /** Sends this server no new connections; open ones stay until the server ends them. */
  readonly remove: (port: number) => void;
  readonly close: () => void;
};

/**
 * Spreads connections over servers like a TCP load balancer. If a server refuses a connection, the next
 * server is tried; if a server ends one, the caller has to reconnect.
 */
export async function startConnectionBalancer(): Promise<ConnectionBalancer> {
  const ports = new Set<number>();
  const open = new Set<Socket>();
  let turn = 0;
  const keep = (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    return socket;
  };
  const dial = (client: Socket, [port, ...rest]: readonly number[]): void => {
    if (port === undefined) client.destroy();
    if (port === undefined || client.destroyed) return;
    const server = keep(connect({ port, host: '127.0.0.1', noDelay: true }));
    const abandon = () => server.destroy();
    client.once('close', abandon);
    const dialNext = () => {
      client.off('close', abandon);
      dial(client, rest);
    };
    server.once('error', dialNext);
    server.once('connect', () => {
      server.off('error', dialNext);
      server.on('error', () => client.destroy());
      server.on('close', () => client.destroy());
      client.pipe(server).pipe(client);
    });
  };
  const balancer = createServer({ noDelay: true }, (client) => {
    keep(client).on('error', () => client.destroy());
    turn += 1;
    const first = turn % Math.max(1, ports.size);
    dial(client, [...[...ports].slice(first), ...[...ports].slice(0, first)]);
  });
  const port = await listenOnAnyPort(balancer);
  return {
    port,
    add: (added) => void ports.add(added),
    remove: (removed) => void ports.delete(removed),
    close: () => {
      for (const socket of open) socket.destroy();
      balancer.close();
    },
  };
}
