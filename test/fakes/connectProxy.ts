import { fileURLToPath } from 'node:url';
import { type Part, startProcess } from '../../sandbox/stack/process.js';

const script = fileURLToPath(new URL('connectProxy.mjs', import.meta.url));

export type ConnectProxy = Pick<Part, 'stop'> & {
  readonly url: string;
  /** The targets of the CONNECT requests, as `host:port`, in order. */
  readonly asked: () => readonly string[];
  /** The `Proxy-Authorization` of each request, or `nobody` where it was missing. */
  readonly logins: () => readonly string[];
  /** The local ports of the proxy's connections to receivers. */
  readonly ports: () => readonly string[];
};

/** Starts an egress proxy as a separate process. It can refuse connections to one port. */
export async function startConnectProxy(deniedPort?: string): Promise<ConnectProxy> {
  const lines: string[] = [];
  const found = (pattern: RegExp) => () => lines.flatMap((line) => pattern.exec(line)?.[1] ?? []);
  const part = await startProcess({
    name: 'egress proxy',
    command: process.execPath,
    args: [script, ...(deniedPort === undefined ? [] : [deniedPort])],
    env: process.env,
    ipc: true,
    ready: { line: (line) => /^ready at (.+)$/.exec(line)?.[1] },
    readyTimeoutMs: 30_000,
    onLog: (line) => lines.push(line),
  });
  return {
    url: part.announced,
    stop: () => part.stop(),
    asked: found(/^CONNECT (\S+) /),
    logins: found(/^CONNECT \S+ by (.+)$/),
    ports: found(/^leaves from (\d+)$/),
  };
}
