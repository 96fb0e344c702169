import { openLine } from '../fakes/line.js';

/** A forwarder to a server that can hold back the server's messages. */
export type SilentLine = {
  readonly url: string;
  /**
   * Silences each connection once the server sends `words` on it: the client gets neither these nor
   * anything later. Resolves when this many connections are silent. What the words confirm is then
   * done, but the clients do not know it.
   */
  readonly keepBack: (words: string, connections: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Opens a forwarder to the server of a URL. It forwards everything until a test interferes. */
export async function openSilentLine(target: string): Promise<SilentLine> {
  let words = '';
  let speaking = 0;
  let done = () => {};
  const { url, close } = await openLine(target, (client, dial) => {
    let isSilent = false;
    dial().on('data', (said: Buffer) => {
      if (!isSilent && speaking > 0 && said.includes(words)) {
        isSilent = true;
        speaking -= 1;
        if (speaking === 0) done();
      }
      if (!isSilent) client.write(said);
    });
  });
  return {
    url,
    close,
    keepBack: (wanted, connections) =>
      new Promise((resolve) => {
        words = wanted;
        speaking = connections;
        done = resolve;
      }),
  };
}
