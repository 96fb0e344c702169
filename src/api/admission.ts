import type Koa from 'koa';
import { isRefusal, refuse } from '../domain/refusal.js';
import type { Scope } from '../domain/scope.js';
import { createAuthenticator, holderOf } from './auth.js';
import { whenClosed } from './concurrency.js';
import { keepCustomers } from './connections.js';
import type { ApiDeps, Refused, Route } from './route.js';
import { answerDelayed, answerProblem } from './serve.js';

/**
 * Who asks is known before a byte of the body is read: an anonymous client may not fill the memory. Then
 * the account is held to its limits, and each answer says how it stands. A request is in flight
 * until its answer is read: those that nobody reads are what would fill the memory.
 */
export function admit({ database, limiter, proxies }: ApiDeps): Koa.Middleware {
  const authenticate = createAuthenticator(database);
  const keep = keepCustomers(limiter.connections, proxies);
  return async (ctx, next) => {
    // The part of the API that takes a key.
    if (!ctx.path.startsWith('/v1/')) return next();
    const holder = await authenticate(ctx.get('Authorization'), proxies.clientOf(ctx.req));
    if (isRefusal(holder)) {
      const isTooFast = holder.code === 'rate_limited';
      const headers = isTooFast ? { 'Retry-After': '1' } : { 'WWW-Authenticate': 'Bearer' };
      return answerProblem(ctx, { refusals: [holder], headers });
    }
    ctx.state['holder'] = holder;
    const { id } = holder.account;
    const { headers, refusal } = limiter.enter(id);
    ctx.set(headers);
    if (refusal !== undefined) return answerDelayed(ctx, refusal);
    const release = keep(ctx.req.socket, id);
    try {
      await next();
    } finally {
      void whenClosed(ctx).then(() => {
        limiter.leave(id);
        release();
      });
    }
  };
}

/** Refuses a key without the route's scope, before the body is read. */
export function requireScope({ method, scope }: Route): Koa.Middleware {
  const broad = method === 'get' ? 'read' : 'write';
  const reaching: readonly Scope[] = scope === broad ? [scope] : [scope, broad];
  return (ctx, next) => {
    const { scopes } = holderOf(ctx);
    if (scopes.some((scope) => reaching.includes(scope))) return next();
    return answerProblem(ctx, scopeMissing(scopes, reaching));
  };
}

/** Refuses a key that has none of the scopes that reach something, of which the first is named. */
export function scopeMissing(scopes: readonly Scope[], reaching: readonly Scope[]): Refused {
  return {
    refusals: [
      refuse('scope_missing', {
        param: 'Authorization',
        expected: `an API key with the scope ${reaching.join(' or ')}`,
        received: `a key with the scope ${scopes.join(', ')}`,
      }),
    ],
    // RFC 6750, 3.1.
    headers: { 'WWW-Authenticate': `Bearer error="insufficient_scope", scope="${reaching[0]}"` },
  };
}
