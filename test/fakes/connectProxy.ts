import { fileURLToPath } from 'node:url';
import { type Part, startProcess } from '../../sandbox/stack/process.js';

const script = fileURLToPath(new URL('connectProxy.mjs', import.meta.url));

export type ConnectProxy = Pick<Part, 'stop'> & {
  readonly url: string;
  /** What it was asked for, `host:port`, in order. */
  readonly asked: () => readonly string[];
  /** Who asked: the `Proxy-Authorization` of each request, or `nobody`. */
  readonly logins: () => readonly string[];
  /** The ports that its connections to receivers have left from. */
  readonly ports: () => readonly string[];
};

/** Starts an egress proxy as a process, which may refuse whatever leads to a port. */
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
