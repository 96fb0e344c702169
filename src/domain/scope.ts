/**
 * The scopes of API keys. `read` allows every GET, `write` every other request. The other two allow parts of
 * these, for keys with minimal permissions: `payouts:create` allows pricing and sending payouts, singly
 * and in batches, to stored beneficiaries; `webhooks` allows managing webhook endpoints and events.
 */
export const scopes = ['read', 'write', 'payouts:create', 'webhooks'] as const;
export type Scope = (typeof scopes)[number];

/** The scopes of a key created without explicit scopes. They allow every route. */
export const allScopes: readonly Scope[] = ['read', 'write'];

export function isScope(text: string): text is Scope {
  return scopes.some((scope) => scope === text);
}
