/**
 * What an API key may do. `read` is every GET and `write` every other request; the other two
 * are parts of these, for a key that shall do no more: `payouts:create` prices and sends
 * payouts, singly and in batches, to beneficiaries that are stored already; `webhooks` is
 * webhook endpoints and events.
 */
export const scopes = ['read', 'write', 'payouts:create', 'webhooks'] as const;
export type Scope = (typeof scopes)[number];

/** A key for which none are stated: it reaches every route. */
export const allScopes: readonly Scope[] = ['read', 'write'];

export function isScope(text: string): text is Scope {
  return scopes.some((scope) => scope === text);
}
