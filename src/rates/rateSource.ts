/**
 * A table of rates. Maps each ISO 4217 currency code to its units per euro as decimal
 * text (EUR itself is "1"). `asOf` is the time at which the rates were valid.
 */
export type RateTable = { readonly asOf: Date; readonly perEuro: ReadonlyMap<string, string> };

/**
 * A provider of rates. `fetch` returns a complete table or throws. `provider` is the
 * name under which rates are stored and shown with every quote. Sources with
 * `isForTests` are rejected if any account is live.
 */
export type RateSource = {
  readonly provider: string;
  readonly isForTests: boolean;
  fetch(): Promise<RateTable>;
};
