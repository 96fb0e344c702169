import { once } from 'node:events';
import { connect, createServer, type Server } from 'node:net';
import { CannotStart } from './cannotStart.js';

const host = '127.0.0.1';

/** Starts listening on any free port of 127.0.0.1 and returns the port. */
export async function listenOnAnyPort(server: Server): Promise<number> {
  server.listen(0, host);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('not a TCP address');
  return address.port;
}

/**
 * Returns a TCP port on 127.0.0.1 that nothing listens on.
 *
 * Opens one connection and closes it from the listening side, which leaves the
 * port in TIME_WAIT: for about a minute Linux then does not assign it to
 * "any port" requests, so two callers do not get the same one.
 */
export async function freePort(): Promise<number> {
  const server = createServer((socket) => socket.end());
  const port = await listenOnAnyPort(server);
  const visitor = connect(port, host);
  visitor.resume();
  await once(visitor, 'close');
  server.close();
  await once(server, 'close');
  return port;
}

/**
 * Returns the port for a part: `wished`, or a free one if that is 0.
 *
 * @param flag the command line flag that sets the port, named in the error
 * @throws Error when something already listens on the wished port
 */
export async function choosePort(wished: number, flag: string): Promise<number> {
  if (wished === 0) return freePort();
  const server = createServer();
  try {
    server.listen(wished, host);
    await once(server, 'listening');
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CannotStart(
      `Port ${wished} of ${host} cannot be used (${reason}). ` +
        `Choose another one with ${flag}, or ${flag} 0 for any free port.`,
      { cause },
    );
  }
  server.close();
  await once(server, 'close');
  return wished;
}
