import { request } from 'undici';

// A rate table is about 2 KiB. 256 KiB leaves room for a longer list and still keeps a wrong URL
// from exhausting memory.
const maximumBytes = 256 * 1024;

/**
 * Downloads `url` and returns its bytes. `name` describes the document in error messages. Throws on a
 * status other than 200, on a body over 256 KiB, and if the whole exchange takes longer than `timeoutMs`.
 * Does not follow redirects.
 */
export async function download(name: string, url: string, timeoutMs: number): Promise<Buffer> {
  const { statusCode, body } = await request(url, { signal: AbortSignal.timeout(timeoutMs) });
  if (statusCode !== 200) {
    // Drain the body: undici reports an uncaught error if it is destroyed instead.
    await body.dump();
    throw new Error(`${name} answered with status ${statusCode}`);
  }
  const parts: Uint8Array[] = [];
  let bytes = 0;
  // An exception inside this loop destroys the body and closes its connection.
  for await (const chunk of body) {
    const part: Uint8Array = chunk;
    bytes += part.byteLength;
    if (bytes > maximumBytes) throw new Error(`${name}: over ${maximumBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** Decodes UTF-8; throws on invalid bytes. */
export function utf8(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}
