import { isIPv6, Socket } from 'node:net';
import { errors, Pool } from 'undici';
import { BlockedAddressError, connectTimeoutMs, type Tunnel } from './guard.js';

// It is in our own network. Shorter than the limit for receivers, whose fault it then is not.
const proxyConnectTimeoutMs = 2_000;

/** The proxy did not answer: no fault of the receiver, which has been sent nothing. */
class EgressProxyError extends Error {
  override readonly name = 'EgressProxyError';
}

/** Opens tunnels through an HTTP proxy, by CONNECT (RFC 9110, section 9.3.6). */
export function createEgressProxy(proxyUrl: string): {
  readonly tunnel: Tunnel;
  readonly close: () => Promise<void>;
} {
  const { origin, username, password } = new URL(proxyUrl);
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const authorization = `Basic ${Buffer.from(login).toString('base64')}`;
  const pool = new Pool(origin, { connect: { timeout: proxyConnectTimeoutMs } });
  const ask = async (path: string) => {
    // A receiver has as long without a proxy.
    const signal = AbortSignal.timeout(connectTimeoutMs);
    const headers = {
      host: path,
      ...(login === ':' ? {} : { 'proxy-authorization': authorization }),
    };
    try {
      return await pool.connect({ path, headers, signal });
    } catch (cause) {
      if (signal.aborted) throw cause;
      // Some hang up where they do not reach a receiver.
      if (cause instanceof errors.SocketError) throw unreachable('the egress proxy hung up');
      throw new EgressProxyError('the egress proxy does not answer', { cause });
    }
  };
  return {
    tunnel: async (address, port) => {
      const host = isIPv6(address) ? `[${address}]` : address;
      const { statusCode, socket } = await ask(`${host}:${port}`);
      if (statusCode >= 200 && statusCode < 300 && socket instanceof Socket) return socket;
      socket.on('error', () => undefined).destroy();
      const detail = `the egress proxy answered ${statusCode}`;
      // 407 is also what smokescreen says of an address that it refuses.
      if (statusCode >= 400 && statusCode < 500) throw new BlockedAddressError(detail);
      throw unreachable(detail);
    },
    close: () => pool.close(),
  };
}

/** The receiver is not reached. No UND_ERR_SOCKET: for that undici would connect again at once. */
const unreachable = (message: string) =>
  Object.assign(new Error(message), { code: 'EHOSTUNREACH' });
