import type { CallbackReader, Rail } from './rail.js';

/** The rails of this installation by name. `T` is the interface that a process may use. */
export type Registry<T> = {
  readonly all: readonly T[];
  readonly find: (name: string) => T | undefined;
};

/** For the worker, which calls the rails. */
export type Rails = Registry<Rail>;
/** For the API, which receives their callbacks. */
export type CallbackReaders = Registry<CallbackReader>;

/** Makes the registry. Throws if two rails have the same name, because the process is wired wrongly then. */
export function createRails<T extends { readonly name: string }>(rails: readonly T[]): Registry<T> {
  const byName = new Map(rails.map((rail) => [rail.name, rail]));
  if (byName.size !== rails.length) throw new Error('Two rails have the same name.');
  return { all: rails, find: (name) => byName.get(name) };
}
