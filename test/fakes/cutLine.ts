import type { Socket } from 'node:net';
import { openLine } from './line.js';

/** A line to a PostgreSQL server that can be cut at any moment. */
export type CutLine = {
  readonly url: string;
  /** How many connections there have been. */
  readonly count: () => number;
  /** Ends every connection as a server does that goes away in silence. */
  readonly hangUp: () => void;
  readonly reset: () => void;
  /** Whether whoever connects from now on is told that the server is starting up. */
  readonly refuseNew: (isRefusing: boolean) => void;
  /** Cuts the next connection as soon as the server has said so many messages on it. */
  readonly cutNextAfter: (messages: number, how: 'closed' | 'reset') => void;
  readonly close: () => Promise<void>;
};

/** Opens a line to the server of a URL; it passes everything on until it is told otherwise. */
export async function openCutLine(databaseUrl: string): Promise<CutLine> {
  let total = 0;
  let isRefusing = false;
  let next: Cut | undefined;
  const { url, clients, close } = await openLine(databaseUrl, (client, dial) => {
    total += 1;
    if (isRefusing) return refuse(client);
    passOn(dial(), client, next);
    next = undefined;
  });
  return {
    url,
    close,
    count: () => total,
    hangUp: () => {
      for (const client of clients) client.end();
    },
    reset: () => {
      for (const client of clients) client.resetAndDestroy();
    },
    refuseNew: (wanted) => {
      isRefusing = wanted;
    },
    cutNextAfter: (messages, how) => {
      next = { messages, how };
    },
  };
}

/** What a PostgreSQL says that was started a moment ago, and hangs up. */
function refuse(client: Socket): void {
  const fields = ['SFATAL', 'VFATAL', 'C57P03', 'Mthe database system is starting up', ''];
  const body = Buffer.from(fields.map((field) => `${field}\0`).join(''));
  const head = Buffer.alloc(5);
  head.write('E');
  head.writeInt32BE(body.length + 4, 1);
  client.on('error', () => client.destroy());
  client.once('data', () => client.end(Buffer.concat([head, body])));
}

type Cut = { readonly messages: number; readonly how: 'closed' | 'reset' };

/** A message begins with a letter and its length, which counts itself but not the letter. */
function passOn(upstream: Socket, client: Socket, cut: Cut | undefined): void {
  let count = 0;
  let rest = Buffer.alloc(0);
  upstream.on('data', (said: Buffer) => {
    if (cut === undefined) return void client.write(said);
    rest = Buffer.concat([rest, said]);
    while (count < cut.messages && rest.length >= 5 && rest.length > rest.readInt32BE(1)) {
      const length = rest.readInt32BE(1) + 1;
      count += 1;
      client.write(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
    if (count < cut.messages) return;
    upstream.pause();
    const end = () => (cut.how === 'closed' ? client.end() : client.resetAndDestroy());
    // Whoever has an answer to that loses the line with it; whoever has none, a moment later.
    client.once('data', end);
    setTimeout(end, 20);
  });
}
