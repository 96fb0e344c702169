import type { Fragment } from 'postgres';
import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import type { PayeeDetails } from '../domain/limits.js';
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

/** Its details are sealed: who may see them opens them with `openDetails`. */
export type BeneficiaryRow = SealedDetails & {
  readonly currency: string;
  /** The oldest other one of the same bank account that the customer has not deleted. */
  readonly sameAccountAs: string | null;
  readonly createdAt: Date;
  /** Since when it has its present details, if they were updated. */
  readonly updatedAt: Date | null;
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

/** A beneficiary of an account by its id, also a deleted one: payouts were made to it. */
export const findBeneficiary = oneOf(ownedIn<BeneficiaryRow>('openable_beneficiaries'));

/** What beneficiaries of an account receive, without their details. */
export const findReceivers = ownedIn<
  Pick<BeneficiaryRow, 'id' | 'currency' | 'deletedAt'> & PayeeDetails
>('beneficiaries', (sql) => sql`id, currency, deleted_at, ${detailsAge(sql)}`);

/** Since when the details are what they are. */
const detailsAge = (sql: Sql) => sql`
  coalesce(updated_at, created_at) as since,
  (extract(epoch from now() - coalesce(updated_at, created_at)) * 1000)::bigint as age_ms`;

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

/** Locks a beneficiary, so that of two updates the second one sees the first. */
export async function lockBeneficiary(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<BeneficiaryRow | undefined> {
  await sql`
    select from beneficiaries where id = ${id} and account_id = ${accountId} for no key update`;
  return findBeneficiary(sql, accountId, id);
}

/** Gives a locked beneficiary other details; the database keeps the version that it had. */
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

type Receiver = PayeeDetails & {
  readonly payoutId: string;
  readonly currency: string;
  /** The version of its details that a payout is accepted for. */
  readonly version: number;
};

/** What the usable beneficiaries that these payouts name receive, held against a concurrent deletion. */
export function lockBeneficiariesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly Receiver[]> {
  return sql<Receiver[]>`
    select p.id as payout_id, currency, version, ${detailsAge(sql)} from payouts p join beneficiaries b
    ${ofPayouts(sql, payoutIds)} and deleted_at is null order by b.id for share of b`;
}

/** A column of a version of a beneficiary: the present one, or one that the database has kept. */
const versioned = (sql: Sql, column: 'sealed' | 'updated_at', version: Fragment) => sql`
  case when ${version} = b.version then b.${sql(column)} else
    (select v.${sql(column)} from beneficiary_versions v
      where v.beneficiary_id = b.id and v.version = ${version}) end as ${sql(column)}`;

/** The details that accepted payouts are sent to: a deletion does not stop what was accepted. */
export function beneficiariesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly (SealedDetails & { readonly payoutId: string })[]> {
  return sql<(SealedDetails & { payoutId: string })[]>`
    select p.id as payout_id, b.id, b.account_id, beneficiary_key, account_key, master_key_id,
           p.beneficiary_version as version,
           ${versioned(sql, 'sealed', sql`p.beneficiary_version`)}
      from payouts p join openable_beneficiaries b ${ofPayouts(sql, payoutIds)}`;
}

/** The beneficiaries of an account's payouts, as they were when each was accepted, or are now. */
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
