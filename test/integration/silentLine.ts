import { openLine } from '../fakes/line.js';

/** A forwarder to a server that can hold back the server's messages. */
export type SilentLine = {
  readonly url: string;
  /**
   * Silences each connection once the server sends `expected` on it: the client gets neither that nor
   * anything later. Resolves when this many connections are silent. What the text confirms is then
   * done, but the clients do not know it.
   */
  readonly keepBack: (expected: string, connections: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Opens a forwarder to the server of a URL. It forwards everything until a test interferes. */
export async function openSilentLine(target: string): Promise<SilentLine> {
  let expected = '';
  let remaining = 0;
  let done = () => {};
  const { url, close } = await openLine(target, (client, connect) => {
    let isSilent = false;
    connect().on('data', (data: Buffer) => {
      if (!isSilent && remaining > 0 && data.includes(expected)) {
        isSilent = true;
        remaining -= 1;
        if (remaining === 0) done();
      }
      if (!isSilent) client.write(data);
    });
  });
  return {
    url,
    close,
    keepBack: (text, connections) =>
      new Promise((resolve) => {
        expected = text;
        remaining = connections;
        done = resolve;
      }),
  };
}
