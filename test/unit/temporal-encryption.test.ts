import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import { describe, expect, it } from 'vitest';
import { encryptingCodec } from '../../src/temporal/encryption.js';

const march = `2026-03:${'a1'.repeat(32)}`;
const april = `2026-04:${'b2'.repeat(32)}`;

const payloadOf = (value: unknown) => defaultPayloadConverter.toPayload(value);
const valueIn = (payload: Payload) => defaultPayloadConverter.fromPayload(payload);

async function encrypted(keys: readonly string[], value: unknown): Promise<Payload> {
  const [payload] = await encryptingCodec(keys).encode([payloadOf(value)]);
  if (payload === undefined) throw new Error('Nothing was encoded.');
  return payload;
}
const decrypted = async (keys: readonly string[], payload: Payload) =>
  (await encryptingCodec(keys).decode([payload])).map(valueIn);

describe('a payload that Temporal stores', () => {
  it('reveals neither its value nor its type, and decrypts to the original', async () => {
    const value = { name: 'Zaphod Plantagenet' };
    const payload = await encrypted([march], value);
    const shown = Buffer.concat([
      ...Object.values(payload.metadata ?? {}),
      payload.data ?? new Uint8Array(),
    ]);
    expect(shown.includes('Zaphod')).toBe(false);
    expect(shown.includes('json/plain')).toBe(false);
    expect(await decrypted([march], payload)).toEqual([value]);
    const again = await encrypted([march], value);
    expect(again.data).not.toEqual(payload.data);
  });

  it('is encrypted with the first key, and decrypted with any of them', async () => {
    const old = await encrypted([march], 'old');
    const young = await encrypted([april, march], 'young');
    expect(young.metadata?.['encryption-key-id']).toEqual(Buffer.from('2026-04'));
    expect(await decrypted([april, march], old)).toEqual(['old']);
    expect(await decrypted([march, april], young)).toEqual(['young']);
  });

  it('is not encrypted while "none" comes first, but encrypted payloads are still decrypted', async () => {
    const plain = await encrypted(['none', march], 'plain');
    expect(plain).toEqual(payloadOf('plain'));
    expect(await decrypted(['none', march], await encrypted([march], 'secret'))).toEqual([
      'secret',
    ]);
  });

  it('is read unchanged when it was written without a key', async () => {
    expect(await decrypted([march], payloadOf('plain'))).toEqual(['plain']);
  });

  it('names the missing key when it cannot be decrypted', async () => {
    const payload = await encrypted([april], 'secret');
    await expect(decrypted([march], payload)).rejects.toThrow('the key 2026-04, which is not set');
  });

  it.each([0, 12, -1])('is refused when its byte %i has changed', async (at) => {
    const payload = await encrypted([march], 'secret');
    const data = Buffer.from(payload.data ?? []);
    const index = at < 0 ? data.length + at : at;
    data[index] = (data[index] ?? 0) ^ 1;
    await expect(decrypted([march], { ...payload, data })).rejects.toThrow();
  });

  it('is refused when it is shorter than a nonce and a tag', async () => {
    const payload = await encrypted([march], 'secret');
    await expect(
      decrypted([march], { ...payload, data: (payload.data ?? new Uint8Array()).subarray(0, 20) }),
    ).rejects.toThrow();
  });
});
