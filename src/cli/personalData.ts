import { readMasterKeyConfig } from '../config.js';
import { rewrapAccountKeys } from '../db/accountKeys.js';
import { eraseBeneficiary } from '../db/beneficiaries.js';
import { longTransaction, transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import { createKeyring } from '../db/personalData.js';
import { type Call, requiredId, signatureOf } from './usage.js';

/** Timeout of an erasure. It scans all idempotency keys of the account: about a minute for ten million. */
const eraseLimitMs = 10 * 60_000;

/** Erases a beneficiary's personal data: from then on nothing can decrypt it. */
export async function erase(call: Call): Promise<void> {
  const id = requiredId('beneficiary', call);
  const signature = signatureOf(call);
  await longTransaction(call.database, eraseLimitMs, async (sql) => {
    await eraseBeneficiary(sql, id);
    await recordCommand(sql, signature, id, { kind: 'erase' });
  });
  console.log(`${id} is erased.`);
}

/** Rewraps all account keys with the first of two master keys, while the running processes accept both. */
export async function rotateMasterKey(call: Call): Promise<void> {
  const signature = signatureOf(call);
  const keyring = createKeyring(readMasterKeyConfig(process.env).MASTER_KEY);
  const [current = ''] = keyring.keys();
  const accounts = await transaction(call.database, async (sql) => {
    const count = await rewrapAccountKeys(sql, keyring);
    await recordCommand(sql, signature, current, { kind: 'master-key rotate', accounts: count });
    return count;
  });
  console.log(`All account keys use ${current}; ${accounts} rewrapped.`);
}
