import { createRemoteJWKSet, errors, type JWTPayload, jwtVerify } from 'jose';
import { allowInsecureRequests, type Configuration, discovery, None } from 'openid-client';
import type { SignInConfig } from '../config.js';

/** Timeout of a request to the provider: longer than any provider needs, shorter than people will wait. */
const providerTimeoutS = 5;

/** Asymmetric only: with HMAC or "none", anyone who knows the public key could forge a token. */
const algorithms = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'EdDSA'],
];

/** Tokens are exchanged as soon as they are issued, so one that leaks later cannot start a session. */
const maxTokenAge = '10 minutes';

/** Minimum pause between two fetches of the provider's keys: any token with an unknown key ID causes one. */
const keysCooldownMs = 5_000;

/** Allowed difference between the provider's clock and ours. */
const clockTolerance = '30 seconds';

const requiredClaims = ['exp', 'iat', 'sub'];

/** jose's codes for errors of the provider's keys rather than the token: timeout, HTTP error, not a JWKS. */
const keyErrors = /^ERR_(JOSE_GENERIC|JWKS_TIMEOUT|JWKS_INVALID)$/;

type Verified = { readonly identity: string } | { readonly fault: string };

/**
 * Fetches a provider's metadata (OpenID Connect Discovery 1.0) and rejects it if it names another issuer.
 * Plain http is only for a provider on this machine.
 */
export function discover(issuer: string, clientId: string): Promise<Configuration> {
  return discovery(new URL(issuer), clientId, undefined, None(), {
    // oxlint-disable-next-line typescript/no-deprecated -- marked deprecated only to stand out
    execute: issuer.startsWith('http:') ? [allowInsecureRequests] : [],
    timeout: providerTimeoutS,
  });
}

/**
 * Verifies ID tokens (OpenID Connect Core 1.0, 3.1.3.7). Fetches the provider's keys on the first token,
 * and again when a token is signed with an unknown key. Throws if the provider does not answer.
 */
export function createVerifier(config: SignInConfig): (idToken: string) => Promise<Verified> {
  const { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: audience } = config;
  let keys: ReturnType<typeof keysOf> | undefined;
  return async (idToken) => {
    // Concurrent callers share one request.
    keys ??= keysOf(config).catch((error: unknown) => {
      keys = undefined;
      throw error;
    });
    const expected = { issuer, audience, algorithms, maxTokenAge, clockTolerance, requiredClaims };
    try {
      const { payload, protectedHeader } = await jwtVerify(idToken, await keys, expected);
      // Access tokens have a different type (RFC 9068) and are meant for another audience.
      const isTyped = (protectedHeader.typ ?? 'JWT').toUpperCase() === 'JWT';
      return isTyped ? identityIn(payload, config) : { fault: 'expected an ID token' };
    } catch (error) {
      if (!(error instanceof errors.JOSEError) || keyErrors.test(error.code)) throw error;
      return { fault: error.message };
    }
  };
}

async function keysOf({ OIDC_ISSUER: issuer, OIDC_CLIENT_ID: client }: SignInConfig) {
  const { jwks_uri: uri } = (await discover(issuer, client)).serverMetadata();
  // Over plain http, an attacker on the network could replace the provider's keys with their own.
  if (!uri?.startsWith(issuer.startsWith('http:') ? 'http' : 'https:'))
    throw new Error(`${issuer} names no jwks_uri that is an https URL.`);
  return createRemoteJWKSet(new URL(uri), {
    ...{ timeoutDuration: providerTimeoutS * 1000, cooldownDuration: keysCooldownMs },
  });
}

function identityIn(
  { sub, aud, azp, email, email_verified: isVerified }: JWTPayload,
  { OIDC_CLIENT_ID: client, OIDC_IDENTITY_CLAIM: claim }: SignInConfig,
): Verified {
  // With several audiences, only `azp` tells which client the token was issued to.
  if ((azp ?? (Array.isArray(aud) && aud.length > 1 ? undefined : client)) !== client)
    return { fault: 'the token was issued to another client' };
  const identity: unknown = claim === 'sub' ? sub : email;
  // The same rule as for operators' identities. ASCII only, because some other characters lower-case to
  // ASCII letters: the Kelvin sign becomes k.
  if (typeof identity !== 'string' || !/^[\x21-\x7e]{1,255}$/.test(identity))
    return { fault: `the token has no ${claim}, or one that is not of ASCII without spaces` };
  if (claim === 'email' && isVerified !== true)
    return { fault: 'the provider has not verified the email' };
  return { identity: claim === 'sub' ? identity : identity.toLowerCase() };
}
