/**
 * A table of rates: for each ISO 4217 currency the decimal text of its units for
 * one euro (EUR itself is "1"), and the moment at which those rates held.
 */
export type RateTable = { readonly asOf: Date; readonly perEuro: ReadonlyMap<string, string> };

/**
 * Where rates come from. `fetch` answers a whole table or throws; `provider` is
 * the name under which the rates are stored and shown with every quote. Figures
 * for tests are refused where an account is live.
 */
export type RateSource = {
  readonly provider: string;
  readonly isForTests: boolean;
  fetch(): Promise<RateTable>;
};
