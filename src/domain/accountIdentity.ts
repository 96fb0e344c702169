import type { BeneficiaryDetails } from './beneficiary.js';
import { plainFields } from './fieldRule.js';

/** Fields that describe the holder or the payment method and do not identify the account. */
const holderFields = /^(type|name.*|tax_id|date_of_birth|registration_number|currency|bic)$/;

/**
 * Returns a text that is equal for details of the same bank account. An IBAN and a national number are
 * matched only for the United Kingdom, where the IBAN contains the sort code and the account number.
 */
export function accountIdentity(details: BeneficiaryDetails): string {
  const [, routing_number, account_number] = /^GB.{6}(.{6})(.{8})$/.exec(details.iban ?? '') ?? [];
  const comparable = routing_number
    ? { ...details, iban: undefined, routing_number, account_number }
    : details;
  const fields = plainFields.filter((field) => !holderFields.test(field));
  return JSON.stringify(fields.map((field) => comparable[field]));
}
