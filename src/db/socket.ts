import { Socket } from 'node:net';
import { raise } from '../metrics.js';

/** The target that postgres.js parsed from a URL: one or more hosts with their ports, or a socket file. */
type Target = {
  readonly host: readonly string[];
  readonly port: readonly number[];
  readonly path?: string | false;
};

/** Creates the sockets of a pool, rotating through the hosts of its URL. */
export function socketsTo(): (target: Target) => Socket {
  let count = 0;
  return ({ host, port, path }) => {
    const turn = count % host.length;
    count += 1;
    const { [turn]: name = 'localhost' } = host;
    // The driver verifies the server's certificate against this host name.
    const socket = Object.assign(new DatabaseSocket(), { host: name });
    return path ? socket.connect(path) : socket.connect(port[turn] ?? 5432, name);
  };
}

/** The start of the server's "ready for query", the last message of the handshake and of each response. */
const ready = Buffer.from('Z\0\0\0\x05', 'latin1');

/**
 * A socket that emits an error only before its connection is open, and afterwards only closes. This
 * works around two bugs of postgres.js 3.4.9. If a socket closes while connecting, for example during
 * a server's recovery, the driver reconnects hundreds of times a second without end, and the caller
 * never learns of the outage. And a query sent between the error and the close of an open socket
 * never completes. Over TLS the driver wraps the socket, and both bugs remain.
 */
class DatabaseSocket extends Socket {
  #isOpen = false;

  constructor() {
    super();
    const detectReady = (data: Buffer) => {
      if (!data.subarray(-6, -1).equals(ready)) return;
      this.#isOpen = true;
      this.off('data', detectReady);
      raise('database_connections', 1);
      this.once('close', () => raise('database_connections', -1));
    };
    this.on('data', detectReady);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    super._destroy(this.#isOpen ? null : (error ?? this.#closed()), callback);
  }

  /** Null if the driver has wrapped the socket: nothing listens for errors then, so none may be emitted. */
  #closed(): Error | null {
    if (this.listenerCount('error') === 0) return null;
    const closed = new Error('The server has ended the connection before it was open.');
    return Object.assign(closed, { code: 'CONNECTION_CLOSED' });
  }
}
