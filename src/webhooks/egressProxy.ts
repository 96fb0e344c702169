import { isIPv6, Socket } from 'node:net';
import { errors, Pool } from 'undici';
import { BlockedAddressError, connectTimeoutMs, type Tunnel } from './guard.js';

// Timeout of connecting to the proxy, which is in our network. It is shorter than the timeout for
// receivers, so that a proxy that is down is not mistaken for a receiver's fault.
const proxyConnectTimeoutMs = 2_000;

/** The proxy did not answer. This is not the receiver's fault, and nothing was sent to the receiver. */
class EgressProxyError extends Error {
  override readonly name = 'EgressProxyError';
}

/** Opens tunnels through an HTTP proxy with CONNECT (RFC 9110, section 9.3.6). */
export function createEgressProxy(proxyUrl: string): {
  readonly tunnel: Tunnel;
  readonly close: () => Promise<void>;
} {
  const { origin, username, password } = new URL(proxyUrl);
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const authorization = `Basic ${Buffer.from(login).toString('base64')}`;
  const pool = new Pool(origin, { connect: { timeout: proxyConnectTimeoutMs } });
  const requestTunnel = async (path: string) => {
    // The same timeout applies to connecting to a receiver without a proxy.
    const signal = AbortSignal.timeout(connectTimeoutMs);
    const headers = {
      host: path,
      ...(login === ':' ? {} : { 'proxy-authorization': authorization }),
    };
    try {
      return await pool.connect({ path, headers, signal });
    } catch (cause) {
      if (signal.aborted) throw cause;
      // Some proxies close the connection if they cannot reach the receiver.
      if (cause instanceof errors.SocketError) throw unreachable('the egress proxy hung up');
      throw new EgressProxyError('the egress proxy does not answer', { cause });
    }
  };
  return {
    tunnel: async (address, port) => {
      const host = isIPv6(address) ? `[${address}]` : address;
      const { statusCode, socket } = await requestTunnel(`${host}:${port}`);
      if (statusCode >= 200 && statusCode < 300 && socket instanceof Socket) return socket;
      socket.on('error', () => undefined).destroy();
      const detail = `the egress proxy answered ${statusCode}`;
      // Smokescreen answers 407 also for addresses that it refuses, so every 4xx counts as blocked.
      if (statusCode >= 400 && statusCode < 500) throw new BlockedAddressError(detail);
      throw unreachable(detail);
    },
    close: () => pool.close(),
  };
}

/** The receiver is unreachable. The code is not UND_ERR_SOCKET, after which undici reconnects at once. */
const unreachable = (message: string) =>
  Object.assign(new Error(message), { code: 'EHOSTUNREACH' });
