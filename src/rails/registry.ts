import type { Rail } from './rail.js';

/** The rails of this installation, by name. */
export type Rails = {
  readonly all: readonly Rail[];
  readonly find: (name: string) => Rail | undefined;
};

/** Makes the registry; two rails of one name are a mistake of whoever composes the process. */
export function createRails(rails: readonly Rail[]): Rails {
  const byName = new Map(rails.map((rail) => [rail.name, rail]));
  if (byName.size !== rails.length) throw new Error('Two rails have the same name.');
  return { all: rails, find: (name) => byName.get(name) };
}
