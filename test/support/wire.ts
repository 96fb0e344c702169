import { once } from 'node:events';
import { connect } from 'node:net';

/** One answer as it came over the wire. */
export type WireAnswer = {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
};

/** A bare connection, on which also what is no HTTP can be sent. */
export type Wire = {
  readonly write: (text: string | Uint8Array) => void;
  /** The next answer in the order of the wire; rejects when the connection ends first. */
  readonly answer: () => Promise<WireAnswer>;
  /** Resolves when the other side has closed, with what came that no answer() has taken. */
  readonly closed: Promise<string>;
  readonly destroy: () => void;
};

const patienceMs = 30_000;

/** Opens a connection to a server of HTTP, as if from another address of this machine. */
export async function openWire(url: string, localAddress?: string): Promise<Wire> {
  const { hostname, port } = new URL(url);
  const from = localAddress === undefined ? {} : { localAddress };
  const socket = connect({ port: Number.parseInt(port, 10), host: hostname, ...from });
  await once(socket, 'connect');
  let rest = '';
  let isClosed = false;
  const waiting = new Set<() => void>();
  const look = () => {
    for (const each of [...waiting]) each();
  };
  socket.setTimeout(patienceMs, () => socket.destroy());
  // A reset is an end like any other: what it ends is seen by what is missing.
  socket.on('error', () => undefined);
  socket.setEncoding('latin1').on('data', (text: string) => {
    rest += text;
    look();
  });
  const closed = new Promise<string>((resolve) => {
    socket.once('close', () => {
      isClosed = true;
      look();
      resolve(rest);
    });
  });
  return {
    write: (text) => socket.write(text),
    answer: () =>
      new Promise((resolve, reject) => {
        const take = () => {
          const taken = takeAnswer(rest);
          if (taken === undefined && !isClosed) return;
          waiting.delete(take);
          if (taken === undefined)
            return reject(new Error(`Closed after "${rest.slice(0, 500)}".`));
          rest = taken.rest;
          resolve(taken.answer);
        };
        waiting.add(take);
        take();
      }),
    closed,
    destroy: () => socket.destroy(),
  };
}

/** Splits the first answer off, once it is whole; every answer of ours announces its length. */
function takeAnswer(text: string) {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [line = '', ...lines] = text.slice(0, end).split('\r\n');
  const headers = new Map(
    lines.map((each) => {
      const colon = each.indexOf(':');
      return [each.slice(0, colon).toLowerCase(), each.slice(colon + 1).trim()] as const;
    }),
  );
  const bodyStart = end + 4;
  const bodyEnd = bodyStart + Number.parseInt(headers.get('content-length') ?? '0', 10);
  if (text.length < bodyEnd) return undefined;
  const status = Number.parseInt(/^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1] ?? '', 10);
  if (Number.isNaN(status)) throw new Error(`No status in "${line}".`);
  const body = Buffer.from(text.slice(bodyStart, bodyEnd), 'latin1').toString('utf8');
  return { answer: { status, headers, body }, rest: text.slice(bodyEnd) };
}
