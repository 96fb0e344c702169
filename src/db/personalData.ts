import { createHmac, randomBytes } from 'node:crypto';
import { accountIdentity } from '../domain/accountIdentity.js';
import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import { open, seal } from '../sealing.js';

/** The master keys of a process by ID. The first one wraps; all of them can unwrap. */
export type Keyring = ReadonlyMap<string, Buffer>;

/** Creates a keyring of master keys, 64 hexadecimal digits each. A key's ID reveals nothing about it. */
export function createKeyring(keys: readonly string[]): Keyring {
  const named = keys.map((digits) => {
    const key = Buffer.from(digits, 'hex');
    const digest = createHmac('sha256', key).update('corridor master key').digest('hex');
    return [`mk_${digest.slice(0, 16)}`, key] as const;
  });
  return new Map(named);
}

/** An account's key as stored. */
export type WrappedAccountKey = {
  readonly accountId: string;
  readonly masterKeyId: string;
  readonly accountKey: Buffer;
};

/** A beneficiary's details as stored, with all keys but the master key. Null after erasure. */
export type SealedDetails = WrappedAccountKey & {
  readonly id: string;
  readonly version: number;
  readonly beneficiaryKey: Buffer | null;
  readonly sealed: Buffer | null;
};

export type NewBeneficiary = Pick<SealedDetails, 'id' | 'accountId'> & {
  readonly details: BeneficiaryDetails;
};

/** Wraps an account's key, by default a new one, with the keyring's first master key. */
export function wrapAccountKey(
  keyring: Keyring,
  accountId: string,
  key: Buffer = randomBytes(32),
): WrappedAccountKey {
  const [[masterKeyId, masterKey] = []] = keyring;
  if (masterKeyId === undefined || masterKey === undefined) throw new Error('No master key.');
  return { accountId, masterKeyId, accountKey: seal(masterKey, key, `account key 1 ${accountId}`) };
}

/** Unwraps an account's key; throws if this process does not have the master key. */
export function unwrapAccountKey(keyring: Keyring, wrapped: WrappedAccountKey): Buffer {
  const { accountId, masterKeyId, accountKey } = wrapped;
  const masterKey = keyring.get(masterKeyId);
  if (masterKey === undefined) throw new Error(`The master key ${masterKeyId} is not loaded.`);
  return open(masterKey, accountKey, `account key 1 ${accountId}`);
}

type Version = Pick<SealedDetails, 'accountId' | 'id' | 'version'>;

const aboutKey = ({ accountId, id }: Omit<Version, 'version'>) =>
  `beneficiary key 1 ${accountId} ${id}`;

const aboutDetails = ({ accountId, id, version }: Version) =>
  `details 1 ${accountId} ${id}${version === 1 ? '' : ` ${version}`}`;

/** Seals a version of the details and computes the hash of its bank account. */
function sealVersion(
  accountKey: Buffer,
  key: Buffer,
  version: Version,
  details: BeneficiaryDetails,
) {
  // A separate key for hashing, because the account's key is for encryption only.
  const hashKey = createHmac('sha256', accountKey).update('account hash').digest();
  return {
    sealed: seal(key, JSON.stringify(details), aboutDetails(version)),
    accountHash: createHmac('sha256', hashKey).update(accountIdentity(details)).digest(),
  };
}

/** Seals the first details of a beneficiary with a new key for this beneficiary. */
export function sealDetails(accountKey: Buffer, { details, ...owner }: NewBeneficiary) {
  const key = randomBytes(32);
  const beneficiaryKey = seal(accountKey, key, aboutKey(owner));
  return { beneficiaryKey, ...sealVersion(accountKey, key, { ...owner, version: 1 }, details) };
}

/** Seals the next version of a beneficiary's details with the beneficiary's existing key. */
export function sealUpdate(keyring: Keyring, row: SealedDetails, details: BeneficiaryDetails) {
  if (row.beneficiaryKey === null) throw new Error(`${row.id} was erased.`);
  const accountKey = unwrapAccountKey(keyring, row);
  const key = open(accountKey, row.beneficiaryKey, aboutKey(row));
  return sealVersion(accountKey, key, { ...row, version: row.version + 1 }, details);
}

/**
 * Returns a function that opens beneficiaries' details, or returns undefined for an erased beneficiary. It
 * caches the unwrapped account keys and the opened details, as several payouts may go to the same
 * beneficiary. The caches live no longer than the function.
 */
export function detailsOpener(keyring: Keyring) {
  const accountKeys = new Map<string, Buffer>();
  const opened = new Map<string, BeneficiaryDetails>();
  return (row: SealedDetails): BeneficiaryDetails | undefined => {
    const { accountId, beneficiaryKey, sealed } = row;
    if (beneficiaryKey === null || sealed === null) return undefined;
    const known = opened.get(aboutDetails(row));
    if (known !== undefined) return known;
    const accountKey = accountKeys.get(accountId) ?? unwrapAccountKey(keyring, row);
    accountKeys.set(accountId, accountKey);
    const key = open(accountKey, beneficiaryKey, aboutKey(row));
    // Only details that we sealed can be opened, and those were validated before.
    const details: BeneficiaryDetails = JSON.parse(
      open(key, sealed, aboutDetails(row)).toString('utf8'),
    );
    opened.set(aboutDetails(row), details);
    return details;
  };
}

/** Opens the details of one beneficiary; undefined if it was erased. */
export function openDetails(keyring: Keyring, row: SealedDetails): BeneficiaryDetails | undefined {
  return detailsOpener(keyring)(row);
}
