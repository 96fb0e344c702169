import type { CallbackReader, Rail } from './rail.js';

/**
 * The rails of this installation by name, for the worker, which calls them. Which one a payout takes is decided
 * by `railNameOf` in domain/corridor.ts.
 */
export type Rails = ReadonlyMap<string, Rail>;
/** The same for the API, which receives their callbacks. */
export type CallbackReaders = ReadonlyMap<string, CallbackReader>;

/** Maps rails by name. Throws if two have the same name, because the process is wired wrongly then. */
export function createRails<T extends { readonly name: string }>(rails: readonly T[]) {
  const byName: ReadonlyMap<string, T> = new Map(rails.map((rail) => [rail.name, rail]));
  if (byName.size !== rails.length) throw new Error('Two rails have the same name.');
  return byName;
}
