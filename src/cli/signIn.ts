import {
  ClientError,
  type Configuration,
  type DeviceAuthorizationResponse,
  initiateDeviceAuthorization,
  pollDeviceAuthorizationGrant,
  ResponseBodyError,
} from 'openid-client';
import { z } from 'zod';
import { ConfigError, readSignInCallerConfig } from '../config.js';
import { discover } from '../signIn/provider.js';
import { Refused } from './usage.js';

const provider = z.object({ issuer: z.string(), client_id: z.string() });
const session = z.object({
  ...{ operator: z.string(), role: z.string(), ends_at: z.string(), key: z.string() },
});
const refusal = z.object({ message: z.string() });

/** Timeout of a request: to verify the token, the sign-in service may have to fetch the provider's keys. */
const answerLimitMs = 20_000;

/**
 * Signs an operator in at the company's OpenID provider, with a browser on any device (RFC 8628). Prints
 * only the session key to standard output, so that a shell variable can capture it.
 */
export async function signIn(): Promise<void> {
  const url = readSignInCallerConfig(process.env).CORRIDOR_SIGN_IN_URL.replace(/\/$/, '');
  const { issuer, client_id: clientId } = await request(provider, `${url}/provider`);
  const token = await tokenAt(issuer, clientId).catch((error: unknown) => {
    if (error instanceof ResponseBodyError)
      throw new Refused(`${issuer} refuses: ${error.error_description ?? error.error}.`);
    throw new ConfigError(`${issuer} cannot sign you in: ${String(error)}`);
  });
  if (token === undefined) throw new Refused(`${issuer} gave no ID token: allow the scope openid.`);
  const begun = await request(session, `${url}/sessions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  });
  console.error(`Signed in as ${begun.operator} (${begun.role}) until ${begun.ends_at}.`);
  console.log(begun.key);
}

async function tokenAt(issuer: string, clientId: string): Promise<string | undefined> {
  const provider = await discover(issuer, clientId);
  const flow = await initiateDeviceAuthorization(provider, { scope: 'openid email' });
  console.error(`Open    ${flow.verification_uri_complete ?? flow.verification_uri}`);
  console.error(`Code    ${flow.user_code}, for ${Math.ceil(flow.expires_in / 60)} minutes`);
  return (await pollUntilExpired(provider, flow)).id_token;
}

/** Keeps polling when a request gets no response, as RFC 8628 (3.5) requires. */
async function pollUntilExpired(provider: Configuration, flow: DeviceAuthorizationResponse) {
  const signal = AbortSignal.timeout(flow.expires_in * 1000);
  for (;;) {
    const poll = pollDeviceAuthorizationGrant(provider, flow, undefined, { signal });
    const token = await poll.catch((error: unknown) => {
      if (signal.aborted || !isUnanswered(error)) throw error;
    });
    if (token) return token;
  }
}

const isUnanswered = (error: unknown) =>
  error instanceof TypeError || (error instanceof ClientError && error.code === 'OAUTH_TIMEOUT');

async function request<T>(shape: z.ZodType<T>, url: string, init: RequestInit = {}): Promise<T> {
  const signal = AbortSignal.timeout(answerLimitMs);
  const response = await fetch(url, { ...init, redirect: 'error', signal }).catch(() => {
    throw new ConfigError(`CORRIDOR_SIGN_IN_URL: ${url} does not answer.`);
  });
  const body: unknown = await response.json().catch(() => undefined);
  const [answer, refused] = [shape.safeParse(body), refusal.safeParse(body)];
  if (response.ok && answer.success) return answer.data;
  if (!response.ok && refused.success)
    throw new (response.status === 503 ? ConfigError : Refused)(refused.data.message);
  throw new ConfigError(`CORRIDOR_SIGN_IN_URL: ${url} is not a sign-in service.`);
}
