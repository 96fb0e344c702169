import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import { exactlyOne, oneOf, ownedIn, type Sql, when } from './client.js';
import { type Page, type PageResult, pageRows, toPage } from './page.js';

export type BeneficiaryRow = {
  readonly id: string;
  readonly accountId: string;
  readonly details: BeneficiaryDetails;
  readonly createdAt: Date;
  readonly deletedAt: Date | null;
};

const columns = (sql: Sql) => sql`id, account_id, details, created_at, deleted_at`;

export async function insertBeneficiary(
  sql: Sql,
  beneficiary: Pick<BeneficiaryRow, 'id' | 'accountId' | 'details'>,
): Promise<BeneficiaryRow> {
  const { id, accountId, details } = beneficiary;
  const [row] = await sql<BeneficiaryRow[]>`
    insert into beneficiaries (id, account_id, details, currency)
    values (${id}, ${accountId}, ${sql.json(details)}, ${details.currency})
    returning ${columns(sql)}`;
  return exactlyOne(row);
}

/** Beneficiaries of an account by their ids, deleted ones too: payouts were made to them. */
export const findBeneficiaries = ownedIn<BeneficiaryRow>('beneficiaries', columns);
export const findBeneficiary = oneOf(findBeneficiaries);

/** A page of an account's beneficiaries that are not deleted. */
export async function listBeneficiaries(
  sql: Sql,
  accountId: string,
  page: Page,
  { currency }: { readonly currency?: string | undefined },
): Promise<PageResult<BeneficiaryRow>> {
  const rows = await sql<BeneficiaryRow[]>`
    select ${columns(sql)} from beneficiaries
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
  const [row] = await sql<BeneficiaryRow[]>`
    update beneficiaries set deleted_at = now()
     where id = ${id} and account_id = ${accountId} and deleted_at is null
    returning ${columns(sql)}`;
  return row;
}

export type BeneficiaryOfPayout = {
  readonly payoutId: string;
  readonly currency: string;
  readonly details: BeneficiaryDetails;
};

/**
 * Not `=` for the account: before the tables are analyzed the planner would look through all
 * beneficiaries of the account for each payout, in place of the one that is named.
 */
const ofPayouts = (sql: Sql, payoutIds: readonly string[]) => sql`
  select p.id as payout_id, b.currency, b.details
    from payouts p join beneficiaries b
      on b.id = p.beneficiary_id and b.account_id is not distinct from p.account_id
   where p.id = any (${[...payoutIds]}::text[])`;

/** The usable beneficiaries that these payouts name, held against a concurrent deletion. */
export function lockBeneficiariesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly BeneficiaryOfPayout[]> {
  return sql<BeneficiaryOfPayout[]>`
    ${ofPayouts(sql, payoutIds)} and b.deleted_at is null order by b.id for share of b`;
}

/** The details that accepted payouts are sent to: a deletion does not stop what was accepted. */
export function beneficiariesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly BeneficiaryOfPayout[]> {
  return sql<BeneficiaryOfPayout[]>`${ofPayouts(sql, payoutIds)}`;
}
