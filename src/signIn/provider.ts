import { createRemoteJWKSet, errors, type JWTPayload, jwtVerify } from 'jose';
import { allowInsecureRequests, type Configuration, discovery, None } from 'openid-client';
import type { SignInConfig } from '../config.js';

/** Longer than any provider takes, and shorter than a person waits. */
const providerTimeoutS = 5;

/** Signed with the provider's private key: nothing that whoever knows a public key could make. */
const algorithms = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'EdDSA'],
];

/** A token is exchanged as soon as it is issued; one that is found later begins no session. */
const maxTokenAge = '10 minutes';

/** Between two requests for the provider's keys: an invented key id causes one, whoever sends it. */
const keysRestMs = 5_000;

/** Of clocks that are not set alike. */
const clockTolerance = '30 seconds';

const requiredClaims = ['exp', 'iat', 'sub'];

/** What jose throws that is no fault of the token: the provider's keys are late, none, or an error's page. */
const faultOfKeys = /^ERR_(JOSE_GENERIC|JWKS_TIMEOUT|JWKS_INVALID)$/;

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
  let keys: ReturnType<typeof keysOf> | undefined;
  return async (idToken) => {
    // However many wait, they ask once.
    keys ??= keysOf(config).catch((error: unknown) => {
      keys = undefined;
      throw error;
    });
    const expected = { issuer, audience, algorithms, maxTokenAge, clockTolerance, requiredClaims };
    try {
      const { payload, protectedHeader } = await jwtVerify(idToken, await keys, expected);
      // An access token has a type of its own (RFC 9068), and is meant for somebody else.
      const isTyped = (protectedHeader.typ ?? 'JWT').toUpperCase() === 'JWT';
      return isTyped ? identityIn(payload, config) : { fault: 'expected an ID token' };
    } catch (error) {
      if (!(error instanceof errors.JOSEError) || faultOfKeys.test(error.code)) throw error;
      return { fault: error.message };
    }
  };
}

async function keysOf({ OIDC_ISSUER: issuer, OIDC_CLIENT_ID: client }: SignInConfig) {
  const { jwks_uri: uri } = (await discover(issuer, client)).serverMetadata();
  // Over plain http whoever is on the way could put their own keys in the place of the provider's.
  if (!uri?.startsWith(issuer.startsWith('http:') ? 'http' : 'https:'))
    throw new Error(`${issuer} names no jwks_uri that is an https URL.`);
  return createRemoteJWKSet(new URL(uri), {
    ...{ timeoutDuration: providerTimeoutS * 1000, cooldownDuration: keysRestMs },
  });
}

function identityIn(
  { sub, aud, azp, email, email_verified: isVerified }: JWTPayload,
  { OIDC_CLIENT_ID: client, OIDC_IDENTITY_CLAIM: claim }: SignInConfig,
): Verified {
  // A token for several is for whom it was issued to.
  if ((azp ?? (Array.isArray(aud) && aud.length > 1 ? undefined : client)) !== client)
    return { fault: 'the token was issued to another client' };
  const identity: unknown = claim === 'sub' ? sub : email;
  // As operators are given them. Beyond ASCII other letters have a small one of ASCII: the sign of kelvin, k.
  if (typeof identity !== 'string' || !/^[\x21-\x7e]{1,255}$/.test(identity))
    return { fault: `the token has no ${claim}, or one that is not of ASCII without spaces` };
  if (claim === 'email' && isVerified !== true)
    return { fault: 'the provider has not verified the email' };
  return { identity: claim === 'sub' ? identity : identity.toLowerCase() };
}
