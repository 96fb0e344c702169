import { openLine } from '../fakes/line.js';

/** A line to a server on which what the server says can be kept back. */
export type SilentLine = {
  readonly url: string;
  /**
   * Each connection on which the server says `words` hears neither them nor anything later,
   * until so many are silent; then this resolves. What the words tell of is done, and whoever
   * asked for it does not know.
   */
  readonly keepBack: (words: string, connections: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Opens a line to the server of a URL; it passes everything on until it is told otherwise. */
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
