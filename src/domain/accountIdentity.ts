import type { BeneficiaryDetails } from './beneficiary.js';
import { plainFields } from './fieldRule.js';

/** What says who holds an account, and how it is paid, rather than which one it is. */
const holderFields = /^(type|name.*|tax_id|date_of_birth|registration_number|currency|bic)$/;

/**
 * The same text for the same bank account. Only in the United Kingdom an IBAN and a national number are
 * known to be one: the IBAN is made of the sort code and the account number.
 */
export function accountIdentity(details: BeneficiaryDetails): string {
  const [, routing_number, account_number] = /^GB.{6}(.{6})(.{8})$/.exec(details.iban ?? '') ?? [];
  const one = routing_number
    ? { ...details, iban: undefined, routing_number, account_number }
    : details;
  const fields = plainFields.filter((field) => !holderFields.test(field));
  return JSON.stringify(fields.map((field) => one[field]));
}
