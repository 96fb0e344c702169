import { generateKeyPairSync, type KeyObject, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { exportJWK, type JWTPayload, SignJWT } from 'jose';

export const clientId = 'corridor-operators';

type Answer = { readonly status?: number; readonly [name: string]: unknown };
export type Claims = { readonly [name in keyof JWTPayload]: JWTPayload[name] | undefined };

type KeysAnswer = readonly [status: number, body: string] | undefined;

type Signing = {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
};

/** An OpenID provider with the device flow. The test decides when its user confirms or denies. */
export async function startOpenidProvider() {
  let signing = newKey();
  const waiting = new Map<string, Claims | null | undefined>();
  const asked: string[] = [];
  let keysAnswer: KeysAnswer;
  let pollsToCut = 0;
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    const sendText = (status: number, body: string) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(body);
    const send = (status: number, body: object) => sendText(status, JSON.stringify(body));
    if (request.url === '/token' && pollsToCut > 0) {
      pollsToCut -= 1;
      return request.socket.destroy();
    }
    if (request.url === '/jwks' && keysAnswer) return sendText(...keysAnswer);
    answer(request).then(
      ({ status = 200, ...body }) => send(status, body),
      () => send(500, {}),
    );
  });
  const listen = async (port = 0) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  };
  const port = await listen();
  const issuer = `http://127.0.0.1:${port}`;

  /** A valid token of the provider, except for what the test changes. */
  const idToken = (claims: Claims, typ = 'JWT', { kid, privateKey } = signing) => {
    const nowS = Math.floor(Date.now() / 1000);
    const usual = { iss: issuer, aud: clientId, iat: nowS, exp: nowS + 300 };
    return new SignJWT(Object.fromEntries(Object.entries({ ...usual, ...claims })))
      .setProtectedHeader({ alg: 'RS256', kid, typ })
      .sign(privateKey);
  };
  const answer = async (request: IncomingMessage): Promise<Answer> => {
    const form = new URLSearchParams(await text(request));
    switch (request.url ?? '') {
      case '/.well-known/openid-configuration':
        return {
          issuer,
          jwks_uri: `${issuer}/jwks`,
          token_endpoint: `${issuer}/token`,
          device_authorization_endpoint: `${issuer}/device`,
        };
      case '/jwks':
        return {
          keys: [{ ...(await exportJWK(signing.publicKey)), kid: signing.kid, alg: 'RS256' }],
        };
      case '/device': {
        const code = randomUUID();
        waiting.set(code, undefined);
        const page = `${issuer}/activate`;
        return {
          ...{ device_code: code, user_code: 'WDJB-MJHT', verification_uri: page },
          ...{ expires_in: 600, interval: 1 },
        };
      }
      case '/token': {
        const claims = waiting.get(form.get('device_code') ?? '');
        if (claims === undefined) return { status: 400, error: 'authorization_pending' };
        if (claims === null) return { status: 400, error: 'access_denied' };
        const id_token = await idToken(claims);
        return { access_token: randomUUID(), token_type: 'Bearer', id_token };
      }
      default:
        return { status: 404 };
    }
  };
  return {
    issuer,
    idToken,
    signing: () => signing,
    newKey,
    /** The requested paths, in order. */
    asked,
    /** Sets a response that replaces the key set, until it is set to undefined. */
    answerForKeys: (answer: KeysAnswer) => {
      keysAnswer = answer;
    },
    /** Closes the connections of the next polls without an answer. */
    cutPolls: (count: number) => {
      pollsToCut = count;
    },
    /** Signs with a new key from now on. */
    rotate: () => {
      signing = newKey();
    },
    /** Answers the latest device request as its user: with claims to confirm, or null to deny. */
    confirm: (claims: Claims | null) => {
      const [code] = [...waiting.keys()].slice(-1);
      if (code === undefined) throw new Error('No device request is pending.');
      waiting.set(code, claims);
    },
    goAway: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
    comeBack: () => listen(port),
  };
}

function newKey(): Signing {
  return { kid: randomUUID(), ...generateKeyPairSync('rsa', { modulusLength: 2048 }) };
}
