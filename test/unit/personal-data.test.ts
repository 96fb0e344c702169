import { describe, expect, it } from 'vitest';
import {
  createKeyring,
  openDetails,
  sealDetails,
  sealUpdate,
  unwrapAccountKey,
  wrapAccountKey,
} from '../../src/db/personalData.js';
import type { BeneficiaryDetails } from '../../src/domain/beneficiary.js';
import { masterKey } from '../fixtures/keyring.js';
import { american, beneficiary } from '../fixtures/requestPayout.js';

const keyring = createKeyring([masterKey]);

/** A beneficiary as stored, encrypted with a key of its account. */
function stored(
  id: string,
  details: BeneficiaryDetails = beneficiary,
  account = wrapAccountKey(keyring, 'acc_1'),
) {
  const { accountId } = account;
  const accountKey = unwrapAccountKey(keyring, account);
  return { ...account, id, version: 1, ...sealDetails(accountKey, { accountId, id, details }) };
}

describe('the details of a beneficiary', () => {
  it('decrypt to the original, and are encrypted differently each time', () => {
    const row = stored('bnf_1');
    expect(openDetails(keyring, row)).toEqual(beneficiary);
    const text = Object.values(row).map(String).join('\n');
    for (const value of Object.values(beneficiary)) expect(text).not.toContain(value);
    expect(stored('bnf_1').sealed.equals(row.sealed)).toBe(false);
  });

  it('decrypt only in the row that they were encrypted for', () => {
    const account = wrapAccountKey(keyring, 'acc_1');
    const row = stored('bnf_1', beneficiary, account);
    const other = stored('bnf_2', beneficiary, account);
    const moved = [
      { ...row, id: other.id },
      { ...row, sealed: other.sealed },
      { ...row, beneficiaryKey: other.beneficiaryKey },
      // Together they would be a valid row, but of the other's details.
      { ...row, sealed: other.sealed, beneficiaryKey: other.beneficiaryKey },
      { ...row, accountId: 'acc_2' },
      // The details of one version with the number of another.
      { ...row, version: 2 },
      { ...row, ...sealUpdate(keyring, row, beneficiary) },
      { ...row, accountKey: wrapAccountKey(keyring, 'acc_1').accountKey },
      { ...row, sealed: row.beneficiaryKey },
    ];
    for (const wrong of moved) expect(() => openDetails(keyring, wrong)).toThrow();
    const changed = Buffer.from(row.sealed);
    changed.writeUInt8(changed.readUInt8(20) ^ 1, 20);
    expect(() => openDetails(keyring, { ...row, sealed: changed })).toThrow();
  });

  it('decrypt only as the version that they were encrypted as, under the same key', () => {
    const row = stored('bnf_1');
    const edited = { ...beneficiary, name: 'Ada King' };
    const next = { ...row, version: 2, ...sealUpdate(keyring, row, edited) };
    expect(openDetails(keyring, next)).toEqual(edited);
    expect(next.accountHash).toEqual(row.accountHash);
    expect(openDetails(keyring, { ...next, beneficiaryKey: null })).toBeUndefined();
  });

  it('do not decrypt without their own key or without the master key', () => {
    const row = stored('bnf_1');
    expect(openDetails(keyring, { ...row, beneficiaryKey: null })).toBeUndefined();
    const foreign = createKeyring(['6b'.repeat(32)]);
    expect(() => openDetails(foreign, row)).toThrow(/master key mk_[0-9a-f]{16} is not loaded/);
    // Nor under the same name, if two keys ever had one.
    const [id = ''] = keyring.keys();
    const renamed = new Map([...foreign.values()].map((key) => [id, key]));
    expect(() => openDetails(renamed, row)).toThrow();
  });

  it('decrypt with either of two master keys, and new ones are wrapped with the first', () => {
    const row = stored('bnf_1');
    const both = createKeyring(['6b'.repeat(32), masterKey]);
    expect(openDetails(both, row)).toEqual(beneficiary);
    const accountKey = unwrapAccountKey(both, row);
    const rewrapped = wrapAccountKey(both, row.accountId, accountKey);
    const alone = createKeyring(['6b'.repeat(32)]);
    expect(openDetails(alone, { ...row, ...rewrapped })).toEqual(beneficiary);
  });
});

describe('the hash of a bank account', () => {
  const account = wrapAccountKey(keyring, 'acc_1');
  const hashOf = (details: BeneficiaryDetails, of = account) =>
    stored('bnf_1', details, of).accountHash.toString('hex');

  it('is the same for the same account, whatever its holder and currency', () => {
    const before = hashOf(beneficiary);
    expect(hashOf({ ...beneficiary, name: 'Babbage' })).toBe(before);
    expect(hashOf({ ...beneficiary, currency: 'USD', bic: 'COBADEFFXXX' })).toBe(before);
  });

  it('is the same for a sort code and account number and for the IBAN made of them', () => {
    const british = { type: 'individual', name: 'Ada', country: 'GB', currency: 'GBP' } as const;
    const byIban = hashOf({ ...british, iban: 'GB82WEST12345698765432' });
    const number = { routing_number: '123456', account_number: '98765432' };
    expect(hashOf({ ...british, ...number })).toBe(byIban);
    expect(hashOf({ ...british, ...number, account_number: '98765433' })).not.toBe(byIban);
    expect(hashOf({ ...british, country: 'JE', iban: 'GB82WEST12345698765432' })).not.toBe(byIban);
  });

  it('differs for another account, and for the same account of another customer', () => {
    const hashes = [
      hashOf(beneficiary),
      hashOf({ ...beneficiary, iban: 'DE02120300000000202051' }),
      hashOf(american),
      hashOf({ ...american, account_number: '000123456780' }),
      hashOf({ ...american, routing_number: '011000015' }),
      hashOf(beneficiary, wrapAccountKey(keyring, 'acc_2')),
    ];
    expect(new Set(hashes).size).toBe(hashes.length);
  });
});
