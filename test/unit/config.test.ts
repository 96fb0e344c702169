import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { ConfigError, readSignInCallerConfig, readSignInConfig } from '../../src/config.js';

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
    'http://corridor-sign-in:8082/path',
  ])('may be %s', (url) => {
    expect(read(url)).toBe(url);
  });

  it.each([
    'http://sign-in.example.com:8082',
    'http://sign-in.:8082',
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
