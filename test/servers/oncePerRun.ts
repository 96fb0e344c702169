/** Something that every project of a run uses, and what ends it. */
export type Shared<T> = { readonly value: T; readonly end: () => Promise<void> };

/** A place for one such thing, with the number of projects that use it. */
type Place<T> = { started: Promise<Shared<T>> | undefined; users: number };

const empty = () => ({ started: undefined, users: 0 });

type Places = {
  readonly postgres: Place<{ readonly url: string; readonly template: string }>;
  /** The addresses. */
  readonly temporal: Place<readonly string[]>;
  /** The folder of their bundle. */
  readonly workflows: Place<string>;
  /** The folder of the clients as an integrator installs them. */
  readonly clients: Place<string>;
};

declare global {
  var corridorTests: Places | undefined;
}

/** Vitest loads a global setup anew for each project, in one process: only this is the same in all. */
globalThis.corridorTests ??= {
  ...{ postgres: empty(), temporal: empty(), workflows: empty(), clients: empty() },
};
export const places: Places = globalThis.corridorTests;

/** Starts it for the first project that asks; it ends when the last one that has asked is done. */
export async function oncePerRun<T>(
  place: Place<T>,
  start: () => Promise<Shared<T>>,
): Promise<Shared<T>> {
  place.started ??= start();
  place.users += 1;
  const { value, end } = await place.started;
  return {
    value,
    end: async () => {
      place.users -= 1;
      if (place.users > 0) return;
      place.started = undefined;
      await end();
    },
  };
}
