import type { Fragment } from 'postgres';
import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import type { PayeeDetails } from '../domain/sendingLimits.js';
import { accountKeyOf } from './accountKeys.js';
import { exactlyOne, oneOf, ownedIn, type Sql, when } from './client.js';
import { type Page, type PageResult, pageRows, toPage } from './page.js';
import {
  type Keyring,
  type NewBeneficiary,
  type SealedDetails,
  sealDetails,
  sealUpdate,
} from './personalData.js';

/** A beneficiary with its sealed details, which `openDetails` decrypts for callers that may see them. */
export type BeneficiaryRow = SealedDetails & {
  readonly currency: string;
  /** The customer's oldest other beneficiary with the same bank account that is not deleted. */
  readonly sameAccountAs: string | null;
  readonly createdAt: Date;
  /** When the details were last updated; null if never. */
  readonly updatedAt: Date | null;
  readonly deletedAt: Date | null;
};

/** Stores a beneficiary. Its details cannot be read without the keyring. */
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

/** Finds a beneficiary of an account, even if deleted, because payouts may refer to it. */
export const findBeneficiary = oneOf(ownedIn<BeneficiaryRow>('openable_beneficiaries'));

/** Finds the currencies and ages of an account's beneficiaries, without their details. */
export const findReceivers = ownedIn<
  Pick<BeneficiaryRow, 'id' | 'currency' | 'deletedAt'> & PayeeDetails
>('beneficiaries', (sql) => sql`id, currency, deleted_at, ${detailsAge(sql)}`);

/** Columns: when the present details were stored, and their age. */
const detailsAge = (sql: Sql) => sql`
  coalesce(updated_at, created_at) as since,
  (extract(epoch from now() - coalesce(updated_at, created_at)) * 1000)::bigint as age_ms`;

/** Lists a page of an account's beneficiaries that are not deleted. */
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

/** Locks a beneficiary, so that the second of two concurrent updates sees the first. */
export async function lockBeneficiary(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<BeneficiaryRow | undefined> {
  await sql`
    select from beneficiaries where id = ${id} and account_id = ${accountId} for no key update`;
  return findBeneficiary(sql, accountId, id);
}

/** Replaces the details of a locked beneficiary. The database keeps the previous version. */
export async function updateBeneficiary(
  sql: Sql,
  keyring: Keyring,
  row: BeneficiaryRow,
  details: BeneficiaryDetails,
): Promise<BeneficiaryRow> {
  const { sealed, accountHash } = sealUpdate(keyring, row, details);
  await sql`select update_beneficiary(${row.id}, ${sealed}, ${accountHash})`;
  return exactlyOne(await findBeneficiary(sql, row.accountId, row.id));
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

/** Erases a beneficiary for good. The database refuses while it may be paid or the law forbids erasure. */
export const eraseBeneficiary = async (sql: Sql, id: string) =>
  sql`select erase_beneficiary(${id})`;

/**
 * Uses `is not distinct from` for the account. With `=`, until the tables are analyzed, the planner would
 * scan all beneficiaries of the account for each payout instead of looking up the one named.
 */
const ofPayouts = (sql: Sql, payoutIds: readonly string[]) => sql`
    on b.id = p.beneficiary_id and b.account_id is not distinct from p.account_id
 where p.id = any (${[...payoutIds]}::text[])`;

type Receiver = PayeeDetails & {
  readonly payoutId: string;
  readonly currency: string;
  /** The version of the details for which the payout is accepted. */
  readonly version: number;
};

/** Finds the beneficiaries of these payouts that are not deleted, and locks them against deletion. */
export const lockBeneficiariesOf = async (sql: Sql, payoutIds: readonly string[]) => sql<
  Receiver[]
>`
  select p.id as payout_id, currency, version, ${detailsAge(sql)} from payouts p join beneficiaries b
  ${ofPayouts(sql, payoutIds)} and coalesce(deleted_at, 'infinity') = 'infinity'
   order by b.id for share of b`;

/** A column of a version of a beneficiary: the present version, or an earlier one that was kept. */
const versioned = (sql: Sql, column: 'sealed' | 'updated_at', version: Fragment) => sql`
  case when ${version} = b.version then b.${sql(column)} else
    (select v.${sql(column)} from beneficiary_versions v
      where v.beneficiary_id = b.id and v.version = ${version}) end as ${sql(column)}`;

/** Finds the details to which accepted payouts are sent. Includes deleted beneficiaries. */
export const beneficiariesOf = (sql: Sql, payoutIds: readonly string[]) => sql<
  (SealedDetails & { payoutId: string })[]
>`
  select p.id as payout_id, b.id, b.account_id, beneficiary_key, account_key, master_key_id,
         p.beneficiary_version as version,
         ${versioned(sql, 'sealed', sql`p.beneficiary_version`)}
    from payouts p join openable_beneficiaries b ${ofPayouts(sql, payoutIds)}`;

/** Finds the beneficiaries of an account's payouts as of acceptance, or as of now before acceptance. */
export function beneficiariesAsPaid(
  sql: Sql,
  accountId: string,
  payoutIds: readonly string[],
): Promise<readonly (BeneficiaryRow & { readonly payoutId: string })[]> {
  const version = sql`coalesce(p.beneficiary_version, b.version)`;
  return sql<(BeneficiaryRow & { payoutId: string })[]>`
    select p.id as payout_id, b.*, ${version} as version, ${versioned(sql, 'sealed', version)},
           ${versioned(sql, 'updated_at', version)}
      from payouts p join openable_beneficiaries b ${ofPayouts(sql, payoutIds)}
       and b.account_id = ${accountId}`;
}
