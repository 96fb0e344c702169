import type { Socket } from 'node:net';
import { openLine } from './line.js';

/** A connection to a PostgreSQL server that a test can cut at any moment. */
export type CutLine = {
  readonly url: string;
  /** The number of connections accepted so far. */
  readonly count: () => number;
  /** Ends every connection without a message, like a server that disappears. */
  readonly hangUp: () => void;
  readonly reset: () => void;
  /** Sets whether new connections are refused with "the database system is starting up". */
  readonly refuseNew: (isRefusing: boolean) => void;
  /** Cuts the next connection once the server has sent this many messages on it. */
  readonly cutNextAfter: (messages: number, how: 'closed' | 'reset') => void;
  readonly close: () => Promise<void>;
};

/** Opens a forwarder to the server of a URL. It forwards everything until a test interferes. */
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

/** Answers as a PostgreSQL that has only just started, and ends the connection. */
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

/** Counts the server's messages: each is a type byte and a length, which includes itself but not the type. */
function passOn(upstream: Socket, client: Socket, cut: Cut | undefined): void {
  let count = 0;
  let rest = Buffer.alloc(0);
  upstream.on('data', (data: Buffer) => {
    if (cut === undefined) return void client.write(data);
    rest = Buffer.concat([rest, data]);
    while (count < cut.messages && rest.length >= 5 && rest.length > rest.readInt32BE(1)) {
      const length = rest.readInt32BE(1) + 1;
      count += 1;
      client.write(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
    if (count < cut.messages) return;
    upstream.pause();
    const end = () => (cut.how === 'closed' ? client.end() : client.resetAndDestroy());
    // The client's next message cuts the connection; if it has none to send, the timer does.
    client.once('data', end);
    setTimeout(end, 20);
  });
}
