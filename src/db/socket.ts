import { Socket } from 'node:net';
import { raise } from '../metrics.js';

/** What postgres.js has read of a URL: one or more hosts, each with its port, or a file. */
type Target = {
  readonly host: readonly string[];
  readonly port: readonly number[];
  readonly path?: string | false;
};

/** The sockets of a pool: the hosts of its URL in turn. */
export function socketsTo(): (target: Target) => Socket {
  let count = 0;
  return ({ host, port, path }) => {
    const turn = count % host.length;
    count += 1;
    const { [turn]: name = 'localhost' } = host;
    // The driver checks a certificate against this name.
    const socket = Object.assign(new DatabaseSocket(), { host: name });
    return path ? socket.connect(path) : socket.connect(port[turn] ?? 5432, name);
  };
}

/** How a server's "ready for query" begins: the last message of an opening and of every answer. */
const ready = Buffer.from('Z\0\0\0\x05', 'latin1');

/**
 * A socket that fails before its connection is open, and afterwards only closes, for postgres.js
 * 3.4.9 can take neither the other way round. One that closes while it is opened, as in a
 * server's recovery, is made again at once and without end, hundreds of times a second, and its
 * caller does not learn of the outage. And what is asked between the failure of an open one
 * and its close is never answered. Over TLS the driver wraps the socket, and all of that stays.
 */
class DatabaseSocket extends Socket {
  #isOpen = false;

  constructor() {
    super();
    const look = (said: Buffer) => {
      if (!said.subarray(-6, -1).equals(ready)) return;
      this.#isOpen = true;
      this.off('data', look);
      raise('database_connections', 1);
      this.once('close', () => raise('database_connections', -1));
    };
    this.on('data', look);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    super._destroy(this.#isOpen ? null : (error ?? this.#closed()), callback);
  }

  /** Where the driver has wrapped the socket nothing listens for errors, so it must not fail. */
  #closed(): Error | null {
    if (this.listenerCount('error') === 0) return null;
    const closed = new Error('The server has ended the connection before it was open.');
    return Object.assign(closed, { code: 'CONNECTION_CLOSED' });
  }
}
