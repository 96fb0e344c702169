import { open, seal } from '../sealing.js';
import { accountKeyOf } from './accountKeys.js';
import { exactlyOne, type Sql } from './client.js';
import type { Keyring } from './personalData.js';

type Secret = { readonly accountId: string; readonly endpointId: string; readonly number: number };

const aboutSecret = ({ accountId, endpointId, number }: Secret) =>
  `webhook secret 1 ${accountId} ${endpointId} ${number}`;

/** Encrypts a secret with its account's key. */
export async function sealSecret(
  sql: Sql,
  keyring: Keyring,
  owner: Secret,
  secret: string,
): Promise<Buffer> {
  return seal(await accountKeyOf(sql, keyring, owner.accountId), secret, aboutSecret(owner));
}

/** Returns an endpoint's valid signing secrets, newest first: one, or two during a rotation's overlap. */
export async function webhookSecretsOf(
  sql: Sql,
  keyring: Keyring,
  endpointId: string,
): Promise<readonly string[]> {
  const rows = await sql<(Secret & { readonly sealed: Buffer })[]>`
    select w.account_id, s.endpoint_id, s.number, s.sealed
      from webhook_endpoints w join webhook_secrets s on s.endpoint_id = w.id
     where w.id = ${endpointId} and (s.number = w.secret_number or w.previous_secret_until > now())
     order by s.number desc`;
  const { accountId } = exactlyOne(rows[0]);
  const accountKey = await accountKeyOf(sql, keyring, accountId);
  return rows.map((row) => open(accountKey, row.sealed, aboutSecret(row)).toString('utf8'));
}

/** Maximum number of cached endpoints: more than get deliveries during one batch. */
const rememberedEndpoints = 1_000;

/**
 * Caches opened secrets of endpoints for all deliveries of a process. A secret with a given number never
 * changes, so cached secrets never become wrong.
 */
export function webhookSecretsOpener(sql: Sql, keyring: Keyring) {
  const opened = new Map<string, Promise<readonly string[]>>();
  return (endpointId: string, number: number, isOverlap: boolean): Promise<readonly string[]> => {
    const key = `${endpointId} ${number} ${isOverlap}`;
    const known = opened.get(key);
    if (known !== undefined) return known;
    const secrets = webhookSecretsOf(sql, keyring, endpointId);
    opened.set(key, secrets);
    secrets.catch(() => opened.delete(key));
    const [oldest = ''] = opened.keys();
    if (opened.size > rememberedEndpoints) opened.delete(oldest);
    return secrets;
  };
}
