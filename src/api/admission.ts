import type Koa from 'koa';
import { isRefusal, refuse } from '../domain/refusal.js';
import type { Scope } from '../domain/scope.js';
import { authenticate, holderOf } from './auth.js';
import type { ApiDeps, Route } from './route.js';
import { answerProblem } from './serve.js';

/** The part of the API that takes a key. */
function isForIntegrators(path: string): boolean {
  return path.startsWith('/v1/');
}

/** Who asks is known before a byte of the body is read: a stranger may not fill the memory. */
export function identify(deps: ApiDeps): Koa.Middleware {
  return async (ctx, next) => {
    if (!isForIntegrators(ctx.path)) return next();
    const holder = await authenticate(deps.database, ctx.get('Authorization'));
    if (isRefusal(holder)) {
      const headers = { 'WWW-Authenticate': 'Bearer' };
      return answerProblem(ctx, { refusals: [holder], headers });
    }
    ctx.state['holder'] = holder;
    return next();
  };
}

/**
 * Holds a key to its limits and says in each answer how it stands: the fields of
 * draft-ietf-httpapi-ratelimit-headers-11, and Retry-After on a refusal.
 */
export function limitRate({ limiter }: ApiDeps): Koa.Middleware {
  return async (ctx, next) => {
    if (!isForIntegrators(ctx.path)) return next();
    const { keyId } = holderOf(ctx);
    const { headers, refusal } = limiter.enter(keyId);
    ctx.set(headers);
    if (refusal !== undefined) return answerProblem(ctx, { refusals: [refusal] });
    try {
      await next();
    } finally {
      limiter.leave(keyId);
    }
  };
}

/** The scopes that reach a route, the narrowest first. */
function scopesFor({ method, scope }: Pick<Route, 'method' | 'scope'>): readonly Scope[] {
  const broad = method === 'get' ? 'read' : 'write';
  return scope === broad ? [scope] : [scope, broad];
}

/** Refuses a key without the route's scope, before the body is read. */
export function requireScope(route: Route): Koa.Middleware {
  const reaching = scopesFor(route);
  return (ctx, next) => {
    const { scopes } = holderOf(ctx);
    if (scopes.some((scope) => reaching.includes(scope))) return next();
    return answerProblem(ctx, {
      refusals: [
        refuse('scope_missing', {
          param: 'Authorization',
          expected: `an API key with the scope ${reaching.join(' or ')}`,
          received: `a key with the scope ${scopes.join(', ')}`,
        }),
      ],
      // RFC 6750, 3.1.
      headers: { 'WWW-Authenticate': `Bearer error="insufficient_scope", scope="${route.scope}"` },
    });
  };
}
