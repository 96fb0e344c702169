import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import {
  ConfigError,
  type Environment,
  readApiConfig,
  readLoginConfig,
  readOperatorConfig,
  readSignInCallerConfig,
  readSignInConfig,
  readStackConfig,
  readWorkerConfig,
} from '../../src/config.js';
import { connectDatabase } from '../../src/db/client.js';

const composeFile = fileURLToPath(new URL('../../docker-compose.yml', import.meta.url));

describe('the address of the sign-in service', () => {
  const read = (CORRIDOR_SIGN_IN_URL: string) =>
    readSignInCallerConfig({ CORRIDOR_SIGN_IN_URL }).CORRIDOR_SIGN_IN_URL;

  it('may be the one in docker-compose.yml', () => {
    const operator = z.object({ environment: z.object({ CORRIDOR_SIGN_IN_URL: z.string() }) });
    const { services } = z
      .object({ services: z.object({ operator, 'sign-in': z.unknown() }) })
      .parse(parse(readFileSync(composeFile, 'utf8'), { merge: true }));
    const url = services.operator.environment.CORRIDOR_SIGN_IN_URL;
    expect(read(url)).toBe(url);
  });

  it.each([
    'https://sign-in.example.com/corridor',
    'http://127.0.0.1:8082',
    'http://localhost:8082',
    'http://sign-in',
  ])('may be %s', (url) => {
    expect(read(url)).toBe(url);
  });

  it.each([
    'http://sign-in.example.com:8082',
    'http://sign-in.:8082',
    'http://corridor:8082',
    'http://sign-in-2:8082',
    'http://10.0.0.7:8082',
    'http://167772167:8082',
    'http://[::1]:8082',
    'http://user@sign-in:8082',
    'http://sign-in:8082?a=b',
    'ftp://sign-in',
  ])('may not be %s', (url) => {
    expect(() => read(url)).toThrow('CORRIDOR_SIGN_IN_URL: expected an https URL');
  });

  it('is not a rule for the OpenID provider, which is outside the network of the containers', () => {
    const settings = { DATABASE_URL: 'postgres://postgres/corridor', OIDC_CLIENT_ID: 'corridor' };
    const withIssuer = (OIDC_ISSUER: string) => readSignInConfig({ ...settings, OIDC_ISSUER });
    expect(withIssuer('http://localhost:9000').OIDC_ISSUER).toBe('http://localhost:9000');
    expect(() => withIssuer('http://keycloak:9000')).toThrow(ConfigError);
  });
});

describe('the URL of a database', () => {
  const settings = {
    TEMPORAL_ADDRESS: '127.0.0.1:7233',
    MASTER_KEY: '0'.repeat(64),
    FINGERPRINT_SECRET: 'a-fingerprint-secret',
    SANDBOX_BANK_URL: 'http://127.0.0.1:8090',
    SANDBOX_BANK_TOKEN: 'a-token-of-the-tests',
    SANDBOX_BANK_CALLBACK_SECRET: 'a-callback-secret-of-the-tests',
    RATE_SOURCE: 'reference',
    OIDC_ISSUER: 'https://id.example.com',
    OIDC_CLIENT_ID: 'corridor',
  };
  const readers: readonly (readonly [string, string, (env: Environment) => unknown])[] = [
    ['the API', 'DATABASE_URL', readApiConfig],
    ['the workers', 'DATABASE_URL', readWorkerConfig],
    ['the sign-in service', 'DATABASE_URL', readSignInConfig],
    ['the command line', 'DATABASE_URL', (env) => readOperatorConfig(env, {})],
    ['corridor migrate', 'API_DATABASE_URL', readLoginConfig],
    ['corridor start', 'DATABASE_URL', readStackConfig],
  ];
  const refusal = (read: (env: Environment) => unknown, name: string, url: string) => {
    try {
      read({ ...settings, [name]: url });
      return '';
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return error.message;
    }
  };

  it.each(readers)('of %s is refused if its password is not encoded', (_, name, read) => {
    for (const password of ['hun#ter', 'hun/ter', 'hun?ter', 'hun%ter', '12#ter', '/ter', '%ff']) {
      const url = `postgres://corridor:${password}@db.example.com:5432/corridor`;
      expect(refusal(read, name, url), password).toBe(
        'These environment variables cannot be used:\n' +
          `  ${name}: expected a URL (postgres://) in which special characters of the password are ` +
          'percent-encoded (# as %23), but its value is not',
      );
      expect(refusal(read, name, url.replace(password, encodeURIComponent('h#/?%@:')))).toBe('');
    }
  });

  it.each([
    ...['', 'corridor', 'mysql://corridor@db/corridor', 'postgres:corridor', 'postgres://db:x/c'],
    ...['postgres://%@db/corridor', 'postgres://corridor@%/corridor'],
  ])('is not "%s"', (url) => {
    expect(refusal(readApiConfig, 'DATABASE_URL', url)).toContain('DATABASE_URL: expected a URL');
  });

  it.each([
    'postgres://db/corridor',
    'postgresql://corridor@db:5432/corridor?sslmode=verify-full',
    'postgres://corridor:a,b@db/corridor?options=-c%20x=1,2',
    'postgres://corridor:pass@word@db/corridor',
    'postgres://corridor:p@one:5432,two:5433/corridor?target_session_attrs=read-write',
    'postgres://corridor:p@one,two',
    'postgres://corridor:p@[::1]:5432/corridor',
    'postgres://corridor:p@%2Fvar%2Frun%2Fpostgresql/corridor',
  ])('may be %s, as the driver reads it', async (url) => {
    expect(refusal(readApiConfig, 'DATABASE_URL', url)).toBe('');
    await connectDatabase({ url, poolSize: 1, applicationName: 'test' }).end();
  });
});
