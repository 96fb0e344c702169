import type { Payload, PayloadCodec } from '@temporalio/common';
import proto from '@temporalio/proto';
import { z } from 'zod';
import { open, seal } from '../sealing.js';

/** Keys as `id:key`, the key in hexadecimal digits. The first one encrypts, unless it is `none`. */
export type EncryptionKeys = readonly string[];

const { Payload: PayloadMessage } = proto.temporal.api.common.v1;
// The format of Temporal's own samples in every language, so that their tools can read our payloads. It
// authenticates no context.
const encoding = 'binary/encrypted';
const context = '';

/**
 * Encrypts the payloads that Temporal stores, including their metadata. Unencrypted payloads are decoded
 * as they are: they were written before there were keys, or by the server itself.
 */
export function encryptingCodec(keys: EncryptionKeys): PayloadCodec {
  const byId = new Map<string, Buffer>();
  for (const [id = '', key] of keys.map((each) => each.split(':')))
    if (key !== undefined) byId.set(id, Buffer.from(key, 'hex'));
  const [first = ''] = keys[0]?.split(':') ?? [];
  const current = byId.get(first);

  const encrypt = (payload: Payload, key: Buffer): Payload => ({
    metadata: { encoding: Buffer.from(encoding), 'encryption-key-id': Buffer.from(first) },
    data: seal(key, PayloadMessage.encode(payload).finish(), context),
  });
  const decrypt = (payload: Payload): Payload => {
    if (textOf(payload, 'encoding') !== encoding) return payload;
    const id = textOf(payload, 'encryption-key-id');
    const key = byId.get(id);
    if (key === undefined)
      throw new Error(
        `TEMPORAL_ENCRYPTION_KEYS: a payload was encrypted with the key ${id}, which is not set`,
      );
    return PayloadMessage.decode(open(key, payload.data ?? new Uint8Array(), context));
  };
  return {
    encode: async (payloads) =>
      current === undefined ? payloads : payloads.map((payload) => encrypt(payload, current)),
    decode: async (payloads) => payloads.map(decrypt),
  };
}

/** Returns the message among a failure's encoded attributes. Throws if the keys cannot decrypt them. */
export async function failureMessage(attributes: Uint8Array, keys: EncryptionKeys) {
  const [payload] = await encryptingCodec(keys).decode([PayloadMessage.decode(attributes)]);
  const decoded = JSON.parse(Buffer.from(payload?.data ?? []).toString());
  return z.object({ message: z.string() }).parse(decoded).message;
}

const textOf = ({ metadata }: Payload, name: string) =>
  Buffer.from(metadata?.[name] ?? []).toString();
