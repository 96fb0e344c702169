import { createPublicKey, verify } from 'node:crypto';
import { z } from 'zod';
import { parseRate } from '../domain/fx.js';
import { isCurrency } from '../domain/money.js';
import { download, utf8 } from './download.js';
import type { RateSource, RateTable } from './rateSource.js';

export const tableProvider = { provider: 'table', isForTests: false } as const;

/**
 * Creates a source of the rate table that the operator of this service publishes at `url`. A detached
 * signature is at `url` + `.sig`: base64 of an Ed25519 signature (RFC 8032) over the exact bytes. `fetch`
 * throws in the same cases as the ECB source, and if the signature was not made by the key (PEM).
 */
export function tableSource(url: string, publicKeyPem: string, timeoutMs = 10_000): RateSource {
  const publicKey = createPublicKey(publicKeyPem);
  return {
    ...tableProvider,
    fetch: async () => {
      const [bytes, signature] = await Promise.all([
        download('The table of rates', url, timeoutMs),
        download('The signature of the table of rates', `${url}.sig`, timeoutMs),
      ]);
      // Never parse bytes without a valid signature.
      if (!verify(null, bytes, publicKey, Buffer.from(signature.toString('latin1'), 'base64'))) {
        throw new Error('The signature of the rate table does not match RATE_TABLE_PUBLIC_KEY');
      }
      return parseTable(utf8(bytes));
    },
  };
}

const tableForm = z.strictObject({
  as_of: z.iso.datetime(),
  per_euro: z.record(z.string(), z.string()),
});

/**
 * Parses {"as_of": "2026-11-23T12:00:00Z", "per_euro": {"USD": "1.1612"}}. Throws on anything else, so
 * that a partly parsed table is never used. Unlike in the ECB's file, a currency that is not in ISO 4217
 * is an error, because the operator wrote the table. EUR may be omitted.
 */
export function parseTable(json: string): RateTable {
  const { as_of: asOf, per_euro: rates } = tableForm.parse(JSON.parse(json));
  // JSON.parse silently keeps the last of two equal names.
  const names = json.match(/"[A-Z]{3}"\s*:/g) ?? [];
  if (names.length !== Object.keys(rates).length) {
    throw new Error('The table of rates has a currency twice');
  }
  const perEuro = new Map(Object.entries({ EUR: '1', ...rates }));
  if (perEuro.size < 2) throw new Error('The table of rates is empty');
  if (perEuro.get('EUR') !== '1') throw new Error('The table of rates must have 1 for EUR');
  for (const [currency, rate] of perEuro) {
    if (!isCurrency(currency)) throw new Error(`The table of rates has no currency ${currency}`);
    parseRate(rate);
  }
  return { asOf: new Date(asOf), perEuro };
}
