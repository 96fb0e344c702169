import { createRemoteJWKSet, errors, type JWTPayload, jwtVerify } from 'jose';
import { allowInsecureRequests, type Configuration, discovery, None } from 'openid-client';
import type { SignInConfig } from '../config.js';

/** Longer than any provider takes, and shorter than a person waits. */
const providerTimeoutS = 5;

/** Signed with the provider's private key: nothing that whoever knows a public key could make. */
const algorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'EdDSA',
];

/** A token is exchanged as soon as it is issued; one that is found later begins no session. */
const maxTokenAge = '10 minutes';

/** Between two requests for the provider's keys: an invented key id causes one, whoever sends it. */
const keysRestMs = 5_000;

/** Of clocks that are not set alike. */
const clockTolerance = '30 seconds';

type Verified = { readonly identity: string } | { readonly fault: string };

/**
 * Reads what a provider says of itself (OpenID Connect Discovery 1.0); one that names another issuer is
 * refused. Plain http is for one on this machine.
 */
export function discover(issuer: string, clientId: string): Promise<Configuration> {
  return discovery(new URL(issuer), clientId, undefined, None(), {
    // oxlint-disable-next-line typescript/no-deprecated -- marked so only to stand out
    execute: issuer.startsWith('http:') ? [allowInsecureRequests] : [],
    timeout: providerTimeoutS,
  });
}

/**
 * Verifies ID tokens (OpenID Connect Core 1.0, 3.1.3.7). The provider is asked for its keys when the first
 * one comes, and again when one is signed with a key that it did not have before. Throws if the provider
 * does not answer.
 */
export function createVerifier(config: SignInConfig): (idToken: string) => Promise<Verified> {
  const { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: audience } = config;
  let keys: ReturnType<typeof createRemoteJWKSet> | undefined;
  return async (idToken) => {
    if (keys === undefined) {
      const { jwks_uri: uri } = (await discover(issuer, audience)).serverMetadata();
      if (uri === undefined) throw new Error(`${issuer} names no jwks_uri.`);
      keys = createRemoteJWKSet(new URL(uri), {
        ...{ timeoutDuration: providerTimeoutS * 1000, cooldownDuration: keysRestMs },
      });
    }
    const expected = { issuer, audience, algorithms, maxTokenAge, clockTolerance };
    try {
      const { payload, protectedHeader } = await jwtVerify(idToken, keys, {
        ...{ ...expected, requiredClaims: ['exp', 'iat', 'sub'] },
      });
      // An access token has a type of its own (RFC 9068), and is meant for somebody else.
      const isTyped = (protectedHeader.typ ?? 'JWT').toUpperCase() === 'JWT';
      return isTyped ? identityIn(payload, config) : { fault: 'expected an ID token' };
    } catch (error) {
      if (error instanceof errors.JWKSTimeout || !(error instanceof errors.JOSEError)) throw error;
      return { fault: error.message };
    }
  };
}

function identityIn(
  { sub = '', aud, azp, email, email_verified: isVerified }: JWTPayload,
  { OIDC_CLIENT_ID: client, OIDC_IDENTITY_CLAIM: claim }: SignInConfig,
): Verified {
  // A token for several is for whom it was issued to.
  if ((azp ?? (Array.isArray(aud) && aud.length > 1 ? undefined : client)) !== client)
    return { fault: 'the token was issued to another client' };
  if (claim === 'sub') return { identity: sub };
  if (typeof email !== 'string' || email === '') return { fault: 'the token has no email' };
  if (isVerified !== true) return { fault: 'the provider has not verified the email' };
  return { identity: email.toLowerCase() };
}
