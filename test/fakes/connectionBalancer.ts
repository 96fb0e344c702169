import { connect, createServer, type Socket } from 'node:net';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';

export type ConnectionBalancer = {
  readonly port: number;
  /** Gives the server on this port its share of the connections to come. */
  readonly add: (port: number) => void;
  /** Gives it no more; those that are open stay until the server ends them. */
  readonly remove: (port: number) => void;
  readonly close: () => void;
};

/**
 * Spreads connections over servers as a name with several addresses does: one that a server refuses
 * goes to the next, and one that ends is for the caller to open again.
 */
export async function startConnectionBalancer(): Promise<ConnectionBalancer> {
  const ports: number[] = [];
  const open = new Set<Socket>();
  let turn = 0;
  const dial = (client: Socket, [port, ...others]: readonly number[]): void => {
    if (port === undefined) {
      client.destroy();
      return;
    }
    const server = connect(port, '127.0.0.1');
    server.setNoDelay(true);
    server.once('error', () => dial(client, others));
    server.once('connect', () => {
      server.removeAllListeners('error');
      for (const [one, other] of [[client, server] as const, [server, client] as const]) {
        one.on('error', () => other.destroy());
        one.on('close', () => other.destroy());
        one.pipe(other);
      }
    });
  };
  const balancer = createServer({ noDelay: true }, (client) => {
    open.add(client);
    client.on('error', () => client.destroy());
    client.on('close', () => open.delete(client));
    turn += 1;
    const first = turn % Math.max(1, ports.length);
    dial(client, [...ports.slice(first), ...ports.slice(0, first)]);
  });
  const port = await listenOnAnyPort(balancer);
  return {
    port,
    add: (added) => ports.push(added),
    remove: (removed) => ports.splice(ports.indexOf(removed), 1),
    close: () => {
      for (const client of open) client.destroy();
      balancer.close();
    },
  };
}
