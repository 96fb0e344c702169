import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** The environment of a process: the only thing configuration is read from. */
export type Environment = { readonly [name: string]: string | undefined };

/** A setting that cannot be used. The message names every variable and what was expected. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

const digits = (form: RegExp, expected: string) => z.string().regex(form, expected);
const portExpected = 'a port number, 0 to 65535';
const port = digits(/^\d{1,5}$/, portExpected)
  .transform(Number)
  .refine((value) => value <= 65_535, portExpected);
const count = digits(/^[1-9]\d{0,4}$/, 'a whole number, 1 to 99999').transform(Number);
const flag = z.enum(['true', 'false'], 'true or false').transform((text) => text === 'true');
const url = (protocols: string) =>
  z
    .string({ error: `a URL (${protocols})` })
    .regex(new RegExp(`^(${protocols})://`), `a URL (${protocols})`);
const secret = z
  .string({ error: 'a secret of at least 16 characters' })
  .min(16, 'at least 16 characters');

/** Two while one takes the other's place; see docs/operations.md. */
const masterKeyForm = '64 hexadecimal digits, or two such keys of which the first wraps';
const masterKeys = z
  .string({ error: masterKeyForm })
  .regex(/^[0-9a-f]{64}(\s+[0-9a-f]{64})?$/i, masterKeyForm)
  .transform((text) => text.split(/\s+/));

const signingKeysForm = 'one to three ed25519 keys, each whsk_ and the base64 of its 32-byte seed';
const signingKeys = z
  .string()
  // The one that signs, the next one and the last one: a rotation needs no more.
  .regex(/^(whsk_[\w+/]{43}=(\s+(?=.)|$)){1,3}$/, signingKeysForm)
  .transform((text) => text.split(/\s+/))
  .default([]);

const rateSource = z.enum(['reference', 'ecb', 'table'], 'reference, ecb or table');
/** What RATE_SOURCE=table needs: where the table is, and the key that it is signed with. */
const rateTable = {
  RATE_TABLE_URL: z.string().default(''),
  RATE_TABLE_PUBLIC_KEY: z.string().default(''),
};
// Without a query, since the signature is at the same address and `.sig`.
const tableUrl = /^https:\/\/[^\s/?#]+\/[^\s?#]+$/;
const localTableUrl = /^(https:\/\/[^\s/?#]+|http:\/\/(localhost|127\.0\.0\.1)(:\d+)?)\/[^\s?#]+$/;
// RFC 8410: what stands before the 32 bytes of every such key is the same.
const ed25519Key =
  /^-----BEGIN PUBLIC KEY-----\s+MCowBQYDK2VwAyEA[\w+/]{43}=\s+-----END PUBLIC KEY-----\s*$/;

const readablePem = (read: (text: string) => unknown) => (text: string) => {
  try {
    return Boolean(read(text));
  } catch {
    return false;
  }
};
const certificate = z
  .string()
  .refine(
    readablePem((text) => new X509Certificate(text)),
    {
      error: 'a certificate in PEM',
      abort: true,
    },
  )
  .optional();
const tlsKeyForm = 'the private key of TEMPORAL_TLS_CERT in PEM';

const encryptionKeysForm =
  'one to eight keys, each an id, a colon and 64 hexadecimal digits, optionally after "none"';
const encryptionKeys = z
  .string({ error: encryptionKeysForm })
  .regex(/^(none\s+)?([\w.-]{1,64}:[0-9a-f]{64}(\s+(?=\S)|$)){1,8}$/i, encryptionKeysForm)
  .transform((text) => text.split(/\s+/))
  .refine((keys) => new Set(keys.map((key) => key.split(':')[0])).size === keys.length, {
    error: 'keys with different ids',
  });

/** How every process of Corridor reaches Temporal; see docs/operations.md. */
const temporal = {
  TEMPORAL_ADDRESS: z.string({ error: 'host:port' }).regex(/^[^/\s]+:\d+$/, 'host:port'),
  TEMPORAL_NAMESPACE: z.string().min(1, 'the name of a namespace').default('default'),
  /** On wherever one of the settings below needs it. */
  TEMPORAL_TLS: flag.optional(),
  /** Who signs the server's certificate, where that is not one of the public authorities. */
  TEMPORAL_TLS_CA: certificate,
  TEMPORAL_TLS_SERVER_NAME: z.string().optional(),
  TEMPORAL_TLS_CERT: certificate,
  TEMPORAL_TLS_KEY: z
    .string()
    .refine(readablePem(createPrivateKey), { error: tlsKeyForm, abort: true })
    .optional(),
  TEMPORAL_API_KEY: z.string().optional(),
  /** The first one encrypts what Temporal stores, each decrypts. */
  TEMPORAL_ENCRYPTION_KEYS: encryptionKeys.optional(),
};

/** What only two settings together show to be wrong. */
function checkTemporal(set: TemporalConfig, context: z.core.$RefinementCtx): void {
  const wrong = (name: keyof TemporalConfig, message: string) =>
    context.addIssue({ code: 'custom', path: [name], message });
  const { TEMPORAL_TLS_CERT: cert, TEMPORAL_TLS_KEY: key } = set;
  if (cert === undefined && key !== undefined)
    wrong('TEMPORAL_TLS_CERT', 'the certificate of TEMPORAL_TLS_KEY in PEM');
  else if (cert !== undefined && key === undefined) wrong('TEMPORAL_TLS_KEY', tlsKeyForm);
  else if (cert !== undefined && key !== undefined) {
    const isPair = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
    if (!isPair) wrong('TEMPORAL_TLS_KEY', tlsKeyForm);
  }
  const needsTls =
    set.TEMPORAL_TLS_CA ?? set.TEMPORAL_TLS_SERVER_NAME ?? cert ?? set.TEMPORAL_API_KEY;
  if (set.TEMPORAL_TLS === false && needsTls !== undefined)
    wrong('TEMPORAL_TLS', 'true with a certificate, a server name or an API key');
}

/** What the API and the workers have in common. */
const shared = {
  DATABASE_URL: url('postgres|postgresql'),
  DATABASE_POOL_SIZE: count.default(16),
  ...temporal,
  /** Wraps the keys of beneficiaries' details: who loses it loses these. */
  MASTER_KEY: masterKeys,
  LOG_LEVEL: z
    .enum(['debug', 'info', 'warn', 'error'], 'debug, info, warn or error')
    .default('info'),
  /** Where traces are sent to, by OTLP over HTTP; none are made unless it is named. */
  OTEL_EXPORTER_OTLP_ENDPOINT: url('http|https').optional(),
  /** The share of requests that begin a trace. */
  OTEL_TRACES_SAMPLER_ARG: digits(/^(0(\.\d+)?|1(\.0+)?)$/, 'a number, 0 to 1')
    .default('1')
    .transform(Number),
  /** Where `/metrics` and `/livez` are served; 0 picks a free port. */
  METRICS_PORT: port.default(0),
  METRICS_HOST: z.string().default('127.0.0.1'),
  /** An older rate prices nothing live. An embedded table holds for a day, ECB skips weekends. */
  RATE_MAXIMUM_AGE_HOURS: count.default(24),
  /** The same of test accounts, where it harms nobody: ECB publishes nothing for five days at Easter. */
  RATE_TEST_MAXIMUM_AGE_HOURS: count.default(120),
  /** Sign webhooks so that receivers need no secret: the first one signs, all are published. */
  WEBHOOK_SIGNING_KEYS: signingKeys,
  /** For local stacks alone: receivers over http and on private or loopback addresses. */
  WEBHOOKS_ALLOW_INSECURE: flag.default(false),
};

/** What one account may ask of one API process: see api/rateLimit.ts. */
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
  /** The bank calls this process back. */
  SANDBOX_BANK_CALLBACK_SECRET: secret,
  /** Accepted as well, while the bank changes from it to the other. */
  SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS: secret.optional(),
  API_HOST: z.string().default('127.0.0.1'),
  API_PORT: port.default(8080),
  /** How long it keeps serving after SIGTERM, so that a load balancer sees `/readyz` fail. */
  STOP_NOTICE_SECONDS: digits(/^(\d|10)$/, 'whole seconds, 0 to 10')
    .default('0')
    .transform(Number),
  /** Keys the fingerprints of idempotent requests; changing it makes old replays mismatch. */
  FINGERPRINT_SECRET: secret,
  /** 50 requests at a time keep the pool's 16 connections busy, and more would only queue. */
  ...rateLimits({ perSecond: 100, burst: 200, inFlight: 50, items: 1_000 }),
  /** Whose X-Forwarded-For is believed: the load balancer in front, and nobody unless it is named. */
  TRUSTED_PROXIES: z
    .string()
    .default('')
    .transform((text) => text.split(',').flatMap((part) => part.trim() || []))
    .refine((networks) => networks.every(isNetwork), 'addresses and subnets, such as 10.0.0.0/8'),
});

const workerSchema = z.object({
  ...shared,
  SANDBOX_BANK_URL: url('http|https'),
  SANDBOX_BANK_TOKEN: secret,
  /**
   * Names this build in Temporal, which then gives it work only once it is made the current version;
   * unset, every worker gets work at once. See "Deploy a release" in docs/operations.md.
   */
  TEMPORAL_WORKER_BUILD_ID: z
    .string()
    .regex(/^[\w.-]{1,128}$/, 'the name of a build, 1 to 128 of A-Z, a-z, 0-9 and . _ -')
    .optional(),
  /** The HTTP proxy that all webhooks leave through; none unless it is named. */
  WEBHOOK_PROXY_URL: z
    .string()
    .refine(
      (text) => /^https?:\/\/[^\s/?#]+\/?$/.test(text) && URL.canParse(text),
      'an http or https URL without a path',
    )
    .default(''),
  /**
   * For rehearsals on local stacks alone: how long the sandbox bank remembers a key, and how long it has
   * to settle. A real one has a day, and five days.
   */
  SANDBOX_KEY_RETENTION_SECONDS: count.optional(),
  SANDBOX_SETTLE_WITHIN_SECONDS: count.optional(),
  /** Above this sum in euros a second person approves what an operator does with money. */
  OPERATOR_APPROVAL_ABOVE_EUR: digits(/^\d{1,9}$/, 'whole euros')
    .default('10000')
    .transform(BigInt),
  /** A return of less of what was sent waits for an operator: correspondents' fees take a few per cent. */
  RETURN_MINIMUM_PERCENT: digits(/^(\d{1,2}|100)$/, 'a whole percentage, 0 to 100')
    .default('90')
    .transform(BigInt),
  /** Whose rates price real money is a decision: there is no default. */
  RATE_SOURCE: rateSource,
  RATE_SOURCE_URL: url('http|https').default(
    'https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml',
  ),
  ...rateTable,
});

const rehearsing = ['SANDBOX_KEY_RETENTION_SECONDS', 'SANDBOX_SETTLE_WITHIN_SECONDS'] as const;

const checkedWorkerSchema = workerSchema
  .refine(
    (set) => set.WEBHOOKS_ALLOW_INSECURE || rehearsing.every((name) => set[name] === undefined),
    {
      path: ['WEBHOOKS_ALLOW_INSECURE'],
      error: `true, as on a local stack, with ${rehearsing.join(' or ')}`,
    },
  )
  .refine(
    ({ RATE_SOURCE, RATE_TABLE_URL, WEBHOOKS_ALLOW_INSECURE: isLocal }) =>
      RATE_SOURCE !== 'table' || (isLocal ? localTableUrl : tableUrl).test(RATE_TABLE_URL),
    { path: ['RATE_TABLE_URL'], error: 'an https URL with a path and no query' },
  )
  .refine((set) => set.RATE_SOURCE !== 'table' || ed25519Key.test(set.RATE_TABLE_PUBLIC_KEY), {
    path: ['RATE_TABLE_PUBLIC_KEY'],
    error: 'an ed25519 public key in PEM',
  });

/** The logins of the processes, as URLs: who migrates makes them, or somebody has before. */
const logins = {
  API_DATABASE_URL: shared.DATABASE_URL.optional(),
  WORKER_DATABASE_URL: shared.DATABASE_URL.optional(),
  OPERATOR_DATABASE_URL: shared.DATABASE_URL.optional(),
  SIGN_IN_DATABASE_URL: shared.DATABASE_URL.optional(),
};
const loginSchema = z.object(logins);

const operatorSchema = z.object({
  DATABASE_URL: shared.DATABASE_URL,
  /** Proves who gives a command. */
  CORRIDOR_OPERATOR_KEY: z.string().default(''),
});
const masterKeySchema = z.object({ MASTER_KEY: masterKeys });
const operatorTemporalSchema = z.object(temporal);

/** Who decrypts for the Temporal UI and the Temporal CLI. */
const codecSchema = z.object({
  TEMPORAL_ENCRYPTION_KEYS: encryptionKeys,
  CODEC_HOST: z.string().default('127.0.0.1'),
  CODEC_PORT: port.default(8081),
  CODEC_TOKEN: secret,
  /** The origin of the Temporal UI, as browsers name it. */
  CODEC_UI_ORIGIN: z
    .string({ error: 'the origin of the Temporal UI' })
    .regex(/^https?:\/\/[^/\s]+$/, 'an origin, such as https://temporal.example.com'),
});

const issuerForm = 'the issuer of an OpenID provider, an https URL';
const identityClaims = ['sub', 'email'] as const;

/** Who signs operators in by the company's own provider. */
const signInSchema = z.object({
  DATABASE_URL: shared.DATABASE_URL,
  LOG_LEVEL: shared.LOG_LEVEL,
  SIGN_IN_HOST: z.string().default('127.0.0.1'),
  SIGN_IN_PORT: port.default(8082),
  OIDC_ISSUER: z
    .string({ error: issuerForm })
    .regex(
      /^(https:\/\/[^\s/?#]+|http:\/\/(localhost|127\.0\.0\.1)(:\d+)?)(\/[^\s?#]*)?$/,
      issuerForm,
    ),
  /** As which Corridor is registered there: a public client with the device flow. */
  OIDC_CLIENT_ID: z.string({ error: 'the id of a client' }).min(1, 'the id of a client'),
  /** What operators are known by. An address may become another person's, `sub` never does. */
  OIDC_IDENTITY_CLAIM: z.enum(identityClaims, identityClaims.join(' or ')).default('sub'),
  SIGN_IN_HOURS: digits(/^([1-9]|1[0-2])$/, 'whole hours, 1 to 12')
    .default('8')
    .transform(Number),
});

/** What `corridor start` and `corridor demo` take from outside instead of starting it. */
const stackSchema = z.object({
  ...logins,
  DATABASE_URL: url('postgres|postgresql').optional(),
  TEMPORAL_ADDRESS: shared.TEMPORAL_ADDRESS.optional(),
  TEMPORAL_NAMESPACE: shared.TEMPORAL_NAMESPACE,
  TEMPORAL_CLI_PATH: z.string().optional(),
  XDG_CACHE_HOME: z.string().optional(),
  HOME: z.string().optional(),
  PATH: z.string().default(''),
  RATE_SOURCE: rateSource.default('reference'),
  ...rateTable,
  /** On one's own machine nobody needs to be kept from anybody. */
  ...rateLimits({ perSecond: 5_000, burst: 10_000, inFlight: 1_000, items: 99_999 }),
});

/** Where operators sign in. */
const signInCallerSchema = z.object({ CORRIDOR_SIGN_IN_URL: url('http|https') });

/** Whose events `corridor listen` reads; without both, those of a local stack. */
const callerSchema = z.object({
  CORRIDOR_API_URL: url('http|https').optional(),
  CORRIDOR_API_KEY: z.string().optional(),
});

export type TemporalConfig = z.infer<z.ZodObject<typeof temporal>>;
export type SignInConfig = z.infer<typeof signInSchema>;
export type CodecConfig = z.infer<typeof codecSchema>;
export type ApiConfig = z.infer<typeof apiSchema>;
export type WorkerConfig = z.infer<typeof workerSchema>;
export type StackConfig = z.infer<typeof stackSchema>;

const hourMs = 60 * 60 * 1000;

/** How old a rate may be, by the mode of the account. */
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

/** `defaults` counts where a setting and its file are not set. */
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

/** `NAME_FILE` names a file that holds the value of `NAME`, as secrets are mounted. Empty is unset. */
function settingOf(name: string, env: Environment): string | undefined {
  const file = env[`${name}_FILE`];
  return env[name] || (file ? readSecret(`${name}_FILE`, file) || undefined : undefined);
}

function readSecret(name: string, path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`${name}: expected a file that can be read (${why})`);
  }
}
