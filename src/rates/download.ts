import { request } from 'undici';

// A table of rates is about 2 KiB; 256 KiB leaves room for a longer list and still stops
// a wrong address from filling the memory.
const maximumBytes = 256 * 1024;

/**
 * The bytes at `url`; `name` says in errors what was wanted. Throws on a status other than 200, a body
 * over 256 KiB, and when the whole exchange takes longer than `timeoutMs`. Redirects are not followed.
 */
export async function download(name: string, url: string, timeoutMs: number): Promise<Buffer> {
  const { statusCode, body } = await request(url, { signal: AbortSignal.timeout(timeoutMs) });
  if (statusCode !== 200) {
    // Read to its end and not destroyed, which undici reports as an uncaught error.
    await body.dump();
    throw new Error(`${name} answered with status ${statusCode}`);
  }
  const parts: Uint8Array[] = [];
  let bytes = 0;
  // Leaving the loop by an exception destroys the body and its connection.
  for await (const chunk of body) {
    const part: Uint8Array = chunk;
    bytes += part.byteLength;
    if (bytes > maximumBytes) throw new Error(`${name}: over ${maximumBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** Text in UTF-8; anything else throws. */
export function utf8(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
}
