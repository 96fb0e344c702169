import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** The environment of a process: the only source of configuration. */
export type Environment = { readonly [name: string]: string | undefined };

/** Invalid settings. The message names every wrong variable and what was expected. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** A text of this form. The message about one that is missing is the same. */
const matching = (form: RegExp, expected: string) =>
  z.string({ error: expected }).regex(form, expected);
const number = (form: RegExp, expected: string) => matching(form, expected).transform(Number);
const integer = (form: RegExp, expected: string) => matching(form, expected).transform(BigInt);
const portExpected = 'a port number, 0 to 65535';
const port = number(/^\d{1,5}$/, portExpected).refine((value) => value <= 65_535, portExpected);
const count = number(/^[1-9]\d{0,4}$/, 'a whole number, 1 to 99999');
const flag = z.enum(['true', 'false'], 'true or false').transform((text) => text === 'true');
const httpUrl = matching(/^https?:\/\//, 'a URL (http|https)');
/** A text that `read` accepts. The message about one that is missing is the same. */
const readable = (read: (text: string) => unknown, error: string) => {
  const isReadable = (text: string) => {
    try {
      return Boolean(read(text));
    } catch {
      return false;
    }
  };
  return z.string({ error }).refine(isReadable, { error, abort: true });
};
/**
 * Refuses what the driver cannot parse, because its error contains the URL with the password. An unencoded # or /
 * can also turn the user into the host, and the @ is then somewhere behind it.
 */
const databaseUrl = readable((text) => {
  // The driver accepts several hosts, of which URL accepts only one.
  const { username, password, host } = new URL(text.replace(/,[^@/?#]*(?=[/?#]|$)/, ''));
  const [user] = [username, password, host].map((part) => decodeURIComponent(part));
  return /^postgres(ql)?:\/\//.test(text) && (user !== '' || !text.includes('@'));
}, 'a URL (postgres://) in which special characters of the password are percent-encoded (# as %23)');
const secret = z
  .string({ error: 'a secret of at least 16 characters' })
  .min(16, 'at least 16 characters');

/** One master key, or two during a rotation; see docs/operations.md. */
const masterKeys = matching(
  /^[0-9a-f]{64}(\s+[0-9a-f]{64})?$/i,
  '64 hexadecimal digits, or two such keys, the first of which wraps',
).transform((text) => text.split(/\s+/));

const signingKeysForm = 'one to three ed25519 keys, each whsk_ and the base64 of its 32-byte seed';
const signingKeys = z
  .string()
  // The current, the next and the previous key: a rotation needs no more.
  .regex(/^(whsk_[\w+/]{43}=(\s+(?=.)|$)){1,3}$/, signingKeysForm)
  .transform((text) => text.split(/\s+/))
  .default([]);

const rateSource = z.enum(['reference', 'ecb', 'table'], 'reference, ecb or table');
/** Settings that RATE_SOURCE=table needs: the table's URL and the public key that verifies its signature. */
const rateTable = {
  RATE_TABLE_URL: z.string().default(''),
  RATE_TABLE_PUBLIC_KEY: z.string().default(''),
};
// No query, because the signature's URL is this one with `.sig` appended.
const tableUrl = /^https:\/\/[^\s/?#]+\/[^\s?#]+$/;
const localTableUrl = /^(https:\/\/[^\s/?#]+|http:\/\/(localhost|127\.0\.0\.1)(:\d+)?)\/[^\s?#]+$/;
// RFC 8410: every ed25519 public key has the same prefix before its 32 bytes.
const ed25519Key =
  /^-----BEGIN PUBLIC KEY-----\s+MCowBQYDK2VwAyEA[\w+/]{43}=\s+-----END PUBLIC KEY-----\s*$/;

const certificate = readable((text) => new X509Certificate(text), 'a certificate in PEM');
const tlsKeyForm = 'the private key of TEMPORAL_TLS_CERT in PEM';

const encryptionKeys = matching(
  /^(none\s+)?([\w.-]{1,64}:[0-9a-f]{64}(\s+(?=\S)|$)){1,8}$/i,
  'one to eight keys, each an id, a colon and 64 hexadecimal digits, optionally after "none"',
)
  .transform((text) => text.split(/\s+/))
  .refine((keys) => new Set(keys.map((key) => key.split(':')[0])).size === keys.length, {
    error: 'keys with different ids',
  });

/** Connection settings for Temporal, the same in every Corridor process; see docs/operations.md. */
const temporal = {
  TEMPORAL_ADDRESS: matching(/^[^/\s]+:\d+$/, 'host:port'),
  TEMPORAL_NAMESPACE: z.string().min(1, 'the name of a namespace').default('default'),
  /** By default on if one of the settings below needs it. */
  TEMPORAL_TLS: flag.optional(),
  /** The CA that issued the server's certificate, if it is not a public one. */
  TEMPORAL_TLS_CA: certificate.optional(),
  TEMPORAL_TLS_SERVER_NAME: z.string().optional(),
  TEMPORAL_TLS_CERT: certificate.optional(),
  TEMPORAL_TLS_KEY: readable(createPrivateKey, tlsKeyForm).optional(),
  TEMPORAL_API_KEY: z.string().optional(),
  /** The first key encrypts payloads that Temporal stores, unless "none" precedes it; all keys decrypt. */
  TEMPORAL_ENCRYPTION_KEYS: encryptionKeys.optional(),
};

/** Checks combinations of settings that are each valid alone. */
function checkTemporal(set: TemporalConfig, context: z.core.$RefinementCtx): void {
  const wrong = (name: keyof TemporalConfig, message: string) =>
    context.addIssue({ code: 'custom', path: [name], message });
  const { TEMPORAL_TLS_CERT: cert, TEMPORAL_TLS_KEY: key } = set;
  const isPair = cert && key && new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  if (cert === undefined && key !== undefined)
    wrong('TEMPORAL_TLS_CERT', 'the certificate of TEMPORAL_TLS_KEY in PEM');
  if (cert !== undefined && !isPair) wrong('TEMPORAL_TLS_KEY', tlsKeyForm);
  const needsTls =
    set.TEMPORAL_TLS_CA ?? set.TEMPORAL_TLS_SERVER_NAME ?? cert ?? set.TEMPORAL_API_KEY;
  if (set.TEMPORAL_TLS === false && needsTls !== undefined)
    wrong('TEMPORAL_TLS', 'true with a certificate, a server name or an API key');
}

/** Settings shared by the API and the workers. */
const shared = {
  DATABASE_URL: databaseUrl,
  DATABASE_POOL_SIZE: count.default(16),
  ...temporal,
  /** Wraps the keys that encrypt beneficiaries' details: if it is lost, so are those details. */
  MASTER_KEY: masterKeys,
  LOG_LEVEL: z
    .enum(['debug', 'info', 'warn', 'error'], 'debug, info, warn or error')
    .default('info'),
  /** Endpoint for traces (OTLP over HTTP). Without it, tracing is off. */
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl.optional(),
  /** The share of requests that start a trace (sampling ratio). */
  OTEL_TRACES_SAMPLER_ARG: number(/^(0(\.\d+)?|1(\.0+)?)$/, 'a number, 0 to 1').default(1),
  /** The port that serves `/metrics` and `/livez`; 0 picks a free one. */
  METRICS_PORT: port.default(0),
  METRICS_HOST: z.string().default('127.0.0.1'),
  /** Maximum age of a rate for live payouts. An embedded table is valid for a day; the ECB skips weekends. */
  RATE_MAXIMUM_AGE_HOURS: count.default(24),
  /** The same for test accounts: at Easter the ECB pauses for five days and two hours, and rates are read hourly. */
  RATE_TEST_MAXIMUM_AGE_HOURS: count.default(124),
  /** Asymmetric keys, so that receivers need no secret: the first one signs webhooks, all are published. */
  WEBHOOK_SIGNING_KEYS: signingKeys,
  /** For local stacks only: allows receivers over http and on private or loopback addresses. */
  WEBHOOKS_ALLOW_INSECURE: flag.default(false),
};

/** Rate limits for one account in one API process: see api/rateLimit.ts. */
const rateLimits = (limits: Record<'perSecond' | 'burst' | 'inFlight' | 'items', number>) => ({
  RATE_LIMIT_PER_SECOND: count.default(limits.perSecond),
  RATE_LIMIT_BURST: count.default(limits.burst),
  IN_FLIGHT_LIMIT: count.default(limits.inFlight),
  ITEM_LIMIT_PER_SECOND: count.default(limits.items),
});

const network = z.union([z.ipv4(), z.cidrv4(), z.ipv6(), z.cidrv6()]);
/** Whether a text is an address or a subnet. */
export const isNetwork = (text: string) => network.safeParse(text).success;

const apiSchema = z.object({
  ...shared,
  /** Verifies the bank's callbacks, which this process receives. */
  SANDBOX_BANK_CALLBACK_SECRET: secret,
  /** Also accepted, while the bank switches from it to the new secret. */
  SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS: secret.optional(),
  API_HOST: z.string().default('127.0.0.1'),
  API_PORT: port.default(8080),
  /** How long the API keeps serving after SIGTERM, so that a load balancer sees `/readyz` fail. */
  STOP_NOTICE_SECONDS: number(/^(\d|10)$/, 'whole seconds, 0 to 10').default(0),
  /** Keys the fingerprints of idempotent requests; changing it makes old replays mismatch. */
  FINGERPRINT_SECRET: secret,
  /** 50 requests in flight keep the pool's 16 connections busy; more would only queue. */
  ...rateLimits({ perSecond: 100, burst: 200, inFlight: 50, items: 1_000 }),
  /** Proxies whose X-Forwarded-For is trusted, such as the load balancer in front. By default none. */
  TRUSTED_PROXIES: z
    .string()
    .default('')
    .transform((text) => text.split(',').flatMap((part) => part.trim() || []))
    .refine((networks) => networks.every(isNetwork), 'addresses and subnets, such as 10.0.0.0/8'),
});

const workerSchema = z.object({
  ...shared,
  SANDBOX_BANK_URL: httpUrl,
  SANDBOX_BANK_TOKEN: secret,
  /**
   * Names this build in Temporal, which then sends it work only once it is the current version. Unset,
   * every worker gets work at once. See "Deploy a release" in docs/operations.md.
   */
  TEMPORAL_WORKER_BUILD_ID: z
    .string()
    .regex(/^[\w.-]{1,128}$/, 'the name of a build, 1 to 128 of A-Z, a-z, 0-9 and . _ -')
    .optional(),
  /** The HTTP proxy for all webhooks. By default none. */
  WEBHOOK_PROXY_URL: z
    .string()
    .refine(
      (text) => /^https?:\/\/[^\s/?#]+\/?$/.test(text) && URL.canParse(text),
      'an http or https URL without a path',
    )
    .default(''),
  /**
   * For rehearsals on local stacks only: how long the sandbox bank remembers a key, and how long it may
   * take to settle. For a real bank these are one day and five days.
   */
  SANDBOX_KEY_RETENTION_SECONDS: count.optional(),
  SANDBOX_SETTLE_WITHIN_SECONDS: count.optional(),
  /** Operator commands that move more than this sum in euros need a second person's approval. */
  OPERATOR_APPROVAL_ABOVE_EUR: integer(/^\d{1,9}$/, 'whole euros').default(10_000n),
  /** A return of a smaller share waits for an operator: correspondents' fees take only a few per cent. */
  RETURN_MINIMUM_PERCENT: integer(/^(\d{1,2}|100)$/, 'a whole percentage, 0 to 100').default(90n),
  /** No default: which rates price real money must be a conscious decision. */
  RATE_SOURCE: rateSource,
  RATE_SOURCE_URL: httpUrl.default('https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml'),
  ...rateTable,
});

const rehearsing = ['SANDBOX_KEY_RETENTION_SECONDS', 'SANDBOX_SETTLE_WITHIN_SECONDS'] as const;

const checkedWorkerSchema = workerSchema
  .refine(
    (set) => set.WEBHOOKS_ALLOW_INSECURE || rehearsing.every((name) => set[name] === undefined),
    {
      path: ['WEBHOOKS_ALLOW_INSECURE'],
      error: `true (for local stacks only; elsewhere remove ${rehearsing.join(' and ')})`,
    },
  )
  .refine(
    ({ RATE_SOURCE, RATE_TABLE_URL, WEBHOOKS_ALLOW_INSECURE: isLocal }) =>
      RATE_SOURCE !== 'table' || (isLocal ? localTableUrl : tableUrl).test(RATE_TABLE_URL),
    { path: ['RATE_TABLE_URL'], error: 'an https URL with a path and no query' },
  )
  .refine(
    ({ RATE_SOURCE, RATE_SOURCE_URL, WEBHOOKS_ALLOW_INSECURE: isLocal }) =>
      RATE_SOURCE !== 'ecb' || isLocal || RATE_SOURCE_URL.startsWith('https:'),
    { path: ['RATE_SOURCE_URL'], error: 'an https URL' },
  )
  .refine((set) => set.RATE_SOURCE !== 'table' || ed25519Key.test(set.RATE_TABLE_PUBLIC_KEY), {
    path: ['RATE_TABLE_PUBLIC_KEY'],
    error: 'an ed25519 public key in PEM',
  });

/** The database logins of the processes, as URLs. `corridor migrate` creates those that do not exist yet. */
const logins = {
  API_DATABASE_URL: shared.DATABASE_URL.optional(),
  WORKER_DATABASE_URL: shared.DATABASE_URL.optional(),
  OPERATOR_DATABASE_URL: shared.DATABASE_URL.optional(),
  SIGN_IN_DATABASE_URL: shared.DATABASE_URL.optional(),
};
const loginSchema = z.object(logins);

const operatorSchema = z.object({
  DATABASE_URL: shared.DATABASE_URL,
  /** Authenticates the operator who runs a command. */
  CORRIDOR_OPERATOR_KEY: z.string().default(''),
});
const masterKeySchema = z.object({ MASTER_KEY: masterKeys });
const operatorTemporalSchema = z.object(temporal);

/** Settings of the codec server, which decrypts payloads for the Temporal UI and the Temporal CLI. */
const codecSchema = z.object({
  TEMPORAL_ENCRYPTION_KEYS: encryptionKeys,
  CODEC_HOST: z.string().default('127.0.0.1'),
  CODEC_PORT: port.default(8081),
  CODEC_TOKEN: secret,
  /** The Temporal UI's origin, as browsers send it. */
  CODEC_UI_ORIGIN: z
    .string({ error: 'the origin of the Temporal UI' })
    .regex(/^https?:\/\/[^/\s]+$/, 'an origin, such as https://temporal.example.com'),
});

const identityClaims = ['sub', 'email'] as const;

/** Tokens, or the keys that verify them, come from or go to these URLs, so plain http stays on the machine. */
const secureUrl = /^(https:\/\/[^\s/?#]+|http:\/\/(localhost|127\.0\.0\.1)(:\d+)?)(\/[^\s?#]*)?$/;

/** Settings of the sign-in service, which signs operators in at the company's own OpenID provider. */
const signInSchema = z.object({
  DATABASE_URL: shared.DATABASE_URL,
  LOG_LEVEL: shared.LOG_LEVEL,
  SIGN_IN_HOST: z.string().default('127.0.0.1'),
  SIGN_IN_PORT: port.default(8082),
  OIDC_ISSUER: matching(secureUrl, 'the issuer of an OpenID provider, an https URL'),
  /** Corridor's client ID at the provider: a public client with the device flow. */
  OIDC_CLIENT_ID: z.string({ error: 'the id of a client' }).min(1, 'the id of a client'),
  /** The claim that identifies operators. An email address may be reassigned, `sub` never is. */
  OIDC_IDENTITY_CLAIM: z.enum(identityClaims, identityClaims.join(' or ')).default('sub'),
  SIGN_IN_HOURS: number(/^([1-9]|1[0-2])$/, 'whole hours, 1 to 12').default(8),
});

/** Settings of `corridor start` and `corridor demo`, including existing services to use rather than start. */
const stackSchema = z.object({
  ...logins,
  DATABASE_URL: databaseUrl.optional(),
  TEMPORAL_ADDRESS: shared.TEMPORAL_ADDRESS.optional(),
  TEMPORAL_NAMESPACE: shared.TEMPORAL_NAMESPACE,
  TEMPORAL_CLI_PATH: z.string().optional(),
  XDG_CACHE_HOME: z.string().optional(),
  PATH: z.string().default(''),
  RATE_SOURCE: rateSource.default('reference'),
  ...rateTable,
  /** High limits, because accounts on a developer's machine need no protection from each other. */
  ...rateLimits({ perSecond: 5_000, burst: 10_000, inFlight: 1_000, items: 99_999 }),
});

/**
 * Plain http is also accepted with the one name that docker-compose.yml gives the service: there it does not leave
 * the containers' network. Elsewhere anybody on the network may answer to a name without dots.
 */
const signInUrl = new RegExp(`${secureUrl.source}|^http://sign-in(:\\d+)?$`);

/** Settings of `corridor sign-in`: the URL of the sign-in service. */
const signInCallerSchema = z.object({ CORRIDOR_SIGN_IN_URL: matching(signInUrl, 'an https URL') });

/** The API and account whose events `corridor listen` reads; without both, those of a local stack. */
const callerSchema = z.object({
  CORRIDOR_API_URL: httpUrl.optional(),
  CORRIDOR_API_KEY: z.string().optional(),
});

export type TemporalConfig = z.infer<z.ZodObject<typeof temporal>>;
export type SignInConfig = z.infer<typeof signInSchema>;
export type CodecConfig = z.infer<typeof codecSchema>;
export type ApiConfig = z.infer<typeof apiSchema>;
export type WorkerConfig = z.infer<typeof workerSchema>;
export type StackConfig = z.infer<typeof stackSchema>;

const hourMs = 60 * 60 * 1000;

/** Returns the maximum age of a rate for each account mode. */
export const rateAgesOf = (config: ApiConfig | WorkerConfig) => ({
  live: config.RATE_MAXIMUM_AGE_HOURS * hourMs,
  test: config.RATE_TEST_MAXIMUM_AGE_HOURS * hourMs,
});

export const readApiConfig = (env: Environment) => read(apiSchema.superRefine(checkTemporal), env);
export const readWorkerConfig = (env: Environment) =>
  read(checkedWorkerSchema.superRefine(checkTemporal), env);
export const readOperatorTemporalConfig = (env: Environment, stack: Environment = {}) =>
  read(operatorTemporalSchema.superRefine(checkTemporal), env, stack);
export const readCodecConfig = (env: Environment) => read(codecSchema, env);
export const readSignInConfig = (env: Environment) => read(signInSchema, env);
export const readSignInCallerConfig = (env: Environment) => read(signInCallerSchema, env);
export const readOperatorConfig = (env: Environment, stack: Environment) =>
  read(operatorSchema, env, stack);
export const readMasterKeyConfig = (env: Environment) => read(masterKeySchema, env);
export const readCallerConfig = (env: Environment) => read(callerSchema, env);
export const readLoginConfig = (env: Environment) => read(loginSchema, env);
export const readStackConfig = (env: Environment) => read(stackSchema, env);

/** `defaults` applies to settings for which neither the variable nor its file is set. */
function read<T extends z.ZodRawShape>(
  schema: z.ZodObject<T>,
  env: Environment,
  defaults: Environment = {},
) {
  const values: Record<string, string> = {};
  for (const name of Object.keys(schema.shape)) {
    const value = settingOf(name, env) ?? defaults[name];
    if (value !== undefined) values[name] = value;
  }
  const result = schema.safeParse(values);
  if (result.success) return result.data;
  const lines = result.error.issues.map((issue) => {
    const name = issue.path.join('.');
    const found = values[name] === undefined ? 'it is not set' : 'its value is not';
    return `  ${name}: expected ${issue.message}, but ${found}`;
  });
  throw new ConfigError(`These environment variables cannot be used:\n${lines.join('\n')}`);
}

/** An authority's certificate may be missing from a Secret of Kubernetes, and then public authorities count. */
const mayBeEmpty = ['SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS', 'TEMPORAL_TLS_CA'];

/** Reads `NAME`, or the file that `NAME_FILE` names, as for mounted secrets. An empty variable means unset. */
function settingOf(name: string, env: Environment): string | undefined {
  const file = env[`${name}_FILE`];
  if (env[name] || !file) return env[name] || undefined;
  const text = readSecret(`${name}_FILE`, file);
  // A secret made from an unset variable is empty, and without it the process would run unencrypted, for instance.
  if (text === '' && !mayBeEmpty.includes(name)) {
    throw new ConfigError(`${name}_FILE: expected a file that is not empty (${file})`);
  }
  return text || undefined;
}

function readSecret(name: string, path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`${name}: expected a file that can be read (${why})`);
  }
}
