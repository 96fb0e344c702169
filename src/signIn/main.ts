import { createServer, type IncomingMessage } from 'node:http';
import type { Logger } from 'pino';
import { readSignInConfig, type SignInConfig } from '../config.js';
import { connectDatabase, type Database, isOutage, isRaisedByFunction } from '../db/client.js';
import { beginSession } from '../db/operators.js';
import { createLog } from '../log.js';
import { listen } from '../metricsServer.js';
import { runProcess } from '../process.js';
import { createVerifier } from './provider.js';

/** Requests have only headers, for which Node allows 16 KiB: enough for the largest token. */
const requestTimeoutMs = 10_000;

type Answer = { readonly status: number; readonly body: object };
const problem = (status: number, message: string): Answer => ({ status, body: { message } });

/**
 * Starts sessions for operators who present an ID token of the company's OpenID provider. The database
 * knows which identities are operators and what a session key may do.
 */
function createSignInServer(config: SignInConfig, database: Database, log: Logger) {
  const verify = createVerifier(config);
  const registration = { issuer: config.OIDC_ISSUER, client_id: config.OIDC_CLIENT_ID };
  const begin = async (idToken: string): Promise<Answer> => {
    const verified = await verify(idToken).catch((error: unknown) => {
      log.error({ err: error }, 'the OpenID provider does not answer');
    });
    if (!verified) return problem(503, 'The OpenID provider does not answer. Try again later.');
    if ('fault' in verified) return problem(401, `The ID token is refused: ${verified.fault}.`);
    try {
      const session = await beginSession(database, verified.identity, config.SIGN_IN_HOURS);
      const { operator, role, endsAt, key } = session;
      log.info({ operator, role }, 'an operator has signed in');
      return { status: 201, body: { operator, role, ends_at: endsAt.toISOString(), key } };
    } catch (error) {
      if (isRaisedByFunction(error)) return problem(403, error.message);
      log.error({ err: error }, 'the database did not start a session');
      const what = isOutage(error) ? 'does not answer' : 'refuses the service';
      return problem(503, `The database ${what}. Try again later.`);
    }
  };
  const answer = async ({ headers, method, url }: IncomingMessage): Promise<Answer> => {
    if (url === '/livez') return { status: 200, body: {} };
    if (url === '/provider') return { status: 200, body: registration };
    if (method !== 'POST' || url !== '/sessions') return problem(404, 'Expected POST /sessions.');
    const [, idToken] = /^Bearer (\S+)$/.exec(headers.authorization ?? '') ?? [];
    if (idToken === undefined)
      return problem(401, 'Authorization: expected Bearer and an ID token.');
    const answered = await begin(idToken);
    if ([401, 403].includes(answered.status)) log.warn(answered, 'a sign-in is refused');
    return answered;
  };
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' };
  return createServer({ requestTimeout: requestTimeoutMs }, (request, response) => {
    answer(request).then(
      ({ status, body }) => response.writeHead(status, headers).end(JSON.stringify(body)),
      () => response.destroy(),
    );
  });
}

await runProcess('sign-in', async () => {
  const config = readSignInConfig(process.env);
  const log = createLog({ part: 'sign-in', level: config.LOG_LEVEL });
  const pool = { poolSize: 2, applicationName: 'corridor-sign-in' };
  const database = connectDatabase({ url: config.DATABASE_URL, ...pool });
  const server = createSignInServer(config, database, log);
  const url = await listen(server, config.SIGN_IN_HOST, config.SIGN_IN_PORT);
  log.info({ ready: url }, 'operators can sign in');
  return {
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await database.end({ timeout: 5 });
    },
  };
});
