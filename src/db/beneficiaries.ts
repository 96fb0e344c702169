import { accountKeyOf } from './accountKeys.js';
import { exactlyOne, oneOf, ownedIn, type Sql, when } from './client.js';
import { type Page, type PageResult, pageRows, toPage } from './page.js';
import {
  type Keyring,
  type NewBeneficiary,
  type SealedDetails,
  sealDetails,
} from './personalData.js';

/** Its details are sealed: who may see them opens them with `openDetails`. */
export type BeneficiaryRow = SealedDetails & {
  readonly currency: string;
  /** The oldest other one of the same bank account that the customer has not deleted. */
  readonly sameAccountAs: string | null;
  readonly createdAt: Date;
  readonly deletedAt: Date | null;
};

/** Stores a beneficiary whose details nobody reads without the keyring. */
export async function insertBeneficiary(
  sql: Sql,
  keyring: Keyring,
  beneficiary: NewBeneficiary,
): Promise<BeneficiaryRow> {
  const { id, accountId, details } = beneficiary;
  const accountKey = await accountKeyOf(sql, keyring, accountId);
  const { beneficiaryKey, sealed, accountHash } = sealDetails(accountKey, beneficiary);
  await sql`
    with key as (
      insert into beneficiary_keys (beneficiary_id, wrapped) values (${id}, ${beneficiaryKey})
    )
    insert into beneficiaries (id, account_id, sealed, account_hash, currency)
    values (${id}, ${accountId}, ${sealed}, ${accountHash}, ${details.currency})`;
  return exactlyOne(await findBeneficiary(sql, accountId, id));
}

/** Beneficiaries of an account by their ids, deleted ones too: payouts were made to them. */
export const findBeneficiaries = ownedIn<BeneficiaryRow>('openable_beneficiaries');
export const findBeneficiary = oneOf(findBeneficiaries);

/** What beneficiaries of an account receive, without their details. */
export const findReceivers = ownedIn<Pick<BeneficiaryRow, 'id' | 'currency' | 'deletedAt'>>(
  'beneficiaries',
  (sql) => sql`id, currency, deleted_at`,
);

/** A page of an account's beneficiaries that are not deleted. */
export async function listBeneficiaries(
  sql: Sql,
  accountId: string,
  page: Page,
  { currency }: { readonly currency?: string | undefined },
): Promise<PageResult<BeneficiaryRow>> {
  const rows = await sql<BeneficiaryRow[]>`
    select * from openable_beneficiaries
     where account_id = ${accountId} and deleted_at is null
       and ${when(sql, currency, (wanted) => sql`currency = ${wanted}`)}
       and ${pageRows(sql, page, ['created_at', 'id'])}`;
  return toPage(page, rows);
}

export async function deleteBeneficiary(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<BeneficiaryRow | undefined> {
  const { count } = await sql`
    update beneficiaries set deleted_at = now()
     where id = ${id} and account_id = ${accountId} and deleted_at is null`;
  return count === 0 ? undefined : findBeneficiary(sql, accountId, id);
}

/** Forgets a beneficiary for good; the database refuses it while it may be paid or the law forbids it. */
export async function eraseBeneficiary(sql: Sql, id: string): Promise<void> {
  await sql`select erase_beneficiary(${id})`;
}

/**
 * Not `=` for the account: before the tables are analyzed the planner would look through all
 * beneficiaries of the account for each payout, in place of the one that is named.
 */
const ofPayouts = (sql: Sql, payoutIds: readonly string[]) => sql`
    on b.id = p.beneficiary_id and b.account_id is not distinct from p.account_id
 where p.id = any (${[...payoutIds]}::text[])`;

/** What the usable beneficiaries that these payouts name receive, held against a concurrent deletion. */
export function lockBeneficiariesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly { readonly payoutId: string; readonly currency: string }[]> {
  return sql<{ payoutId: string; currency: string }[]>`
    select p.id as payout_id, currency from payouts p join beneficiaries b
    ${ofPayouts(sql, payoutIds)} and deleted_at is null order by b.id for share of b`;
}

/** The details that accepted payouts are sent to: a deletion does not stop what was accepted. */
export function beneficiariesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly (SealedDetails & { readonly payoutId: string })[]> {
  return sql<(SealedDetails & { payoutId: string })[]>`
    select p.id as payout_id, b.id, b.account_id, sealed, beneficiary_key, account_key, master_key_id
      from payouts p join openable_beneficiaries b ${ofPayouts(sql, payoutIds)}`;
}
