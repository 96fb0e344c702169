import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  randomBytes,
} from 'node:crypto';
import { accountIdentity } from '../domain/accountIdentity.js';
import type { BeneficiaryDetails } from '../domain/beneficiary.js';

/** The master keys that a process knows, by their ids: the first wraps, each unwraps. */
export type Keyring = ReadonlyMap<string, Buffer>;

/** Master keys of 64 hexadecimal digits each. An id tells them apart and says nothing of them. */
export function createKeyring(keys: readonly string[]): Keyring {
  const named = keys.map((digits) => {
    const key = Buffer.from(digits, 'hex');
    const digest = createHmac('sha256', key).update('corridor master key').digest('hex');
    return [`mk_${digest.slice(0, 16)}`, key] as const;
  });
  return new Map(named);
}

/** An account's key as it is stored. */
export type WrappedAccountKey = {
  readonly accountId: string;
  readonly masterKeyId: string;
  readonly accountKey: Buffer;
};

/** A beneficiary's details as they are stored, with every key but the master key; null once erased. */
export type SealedDetails = WrappedAccountKey & {
  readonly id: string;
  readonly version: number;
  readonly beneficiaryKey: Buffer | null;
  readonly sealed: Buffer | null;
};

export type NewBeneficiary = Pick<SealedDetails, 'id' | 'accountId'> & {
  readonly details: BeneficiaryDetails;
};

const algorithm = 'aes-256-gcm';
/** What GCM is made for; a random one is safe for 2^32 texts of a key (NIST SP 800-38D, 8.3). */
const nonceBytes = 12;
const authTagLength = 16;

/** `about` is authenticated: what was moved to another row, or another column, does not open. */
export function seal(key: Buffer, plain: string | Buffer, about: string): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv(algorithm, key, nonce).setAAD(Buffer.from(about));
  return Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** Opens what `seal` has made with the same key of the same thing; throws otherwise. */
export function open(key: Buffer, sealed: Buffer, about: string): Buffer {
  const nonce = sealed.subarray(0, nonceBytes);
  // A key object: Node takes four times as long with a plain buffer, thousands of times a batch.
  const decipher = createDecipheriv(algorithm, createSecretKey(key), nonce, { authTagLength });
  decipher.setAAD(Buffer.from(about)).setAuthTag(sealed.subarray(-authTagLength));
  const text = sealed.subarray(nonceBytes, -authTagLength);
  return Buffer.concat([decipher.update(text), decipher.final()]);
}

/** A key of an account, a new one by default, under the master key that wraps. */
export function wrapAccountKey(
  keyring: Keyring,
  accountId: string,
  key: Buffer = randomBytes(32),
): WrappedAccountKey {
  const [[masterKeyId, masterKey] = []] = keyring;
  if (masterKeyId === undefined || masterKey === undefined) throw new Error('No master key.');
  return { accountId, masterKeyId, accountKey: seal(masterKey, key, `account key 1 ${accountId}`) };
}

/** The key of an account. That this process does not have the master key is an error. */
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

/** A version of the details, with the hash of its bank account. */
function sealVersion(
  accountKey: Buffer,
  key: Buffer,
  version: Version,
  details: BeneficiaryDetails,
) {
  // A key for hashing alone: the account's own encrypts.
  const hashKey = createHmac('sha256', accountKey).update('account hash').digest();
  return {
    sealed: seal(key, JSON.stringify(details), aboutDetails(version)),
    accountHash: createHmac('sha256', hashKey).update(accountIdentity(details)).digest(),
  };
}

/** Seals the first details of a beneficiary, under a key of its own. */
export function sealDetails(accountKey: Buffer, { details, ...owner }: NewBeneficiary) {
  const key = randomBytes(32);
  const beneficiaryKey = seal(accountKey, key, aboutKey(owner));
  return { beneficiaryKey, ...sealVersion(accountKey, key, { ...owner, version: 1 }, details) };
}

/** Seals the next version of a beneficiary's details, under the key that it has. */
export function sealUpdate(keyring: Keyring, row: SealedDetails, details: BeneficiaryDetails) {
  if (row.beneficiaryKey === null) throw new Error(`${row.id} was erased.`);
  const accountKey = unwrapAccountKey(keyring, row);
  const key = open(accountKey, row.beneficiaryKey, aboutKey(row));
  return sealVersion(accountKey, key, { ...row, version: row.version + 1 }, details);
}

/**
 * Opens the details of beneficiaries; undefined once one is erased. The key of an account is unwrapped
 * once for all rows that the returned function opens, and so are details that several payouts go to;
 * both are kept no longer than that function.
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
    // What opens was sealed by us, and is what was validated then.
    const details: BeneficiaryDetails = JSON.parse(
      open(key, sealed, aboutDetails(row)).toString('utf8'),
    );
    opened.set(aboutDetails(row), details);
    return details;
  };
}

/** Opens the details of one beneficiary; undefined once it is erased. */
export function openDetails(keyring: Keyring, row: SealedDetails): BeneficiaryDetails | undefined {
  return detailsOpener(keyring)(row);
}
