/** A resource that every project of a run shares, and the function that ends it. */
export type Shared<T> = { readonly value: T; readonly end: () => Promise<void> };

/** Holds one shared resource and the number of projects that use it. */
type Place<T> = { started: Promise<Shared<T>> | undefined; users: number };

const empty = () => ({ started: undefined, users: 0 });

type Places = {
  readonly postgres: Place<{ readonly url: string; readonly template: string }>;
  /** The servers' addresses. */
  readonly temporal: Place<readonly string[]>;
  /** The folder of the workflow bundle. */
  readonly workflows: Place<string>;
  /** The folder of the clients, installed as an integrator installs them. */
  readonly clients: Place<string>;
};

declare global {
  var corridorTests: Places | undefined;
}

/** Vitest loads a global setup once per project, all in one process, so only `globalThis` is shared. */
globalThis.corridorTests ??= {
  ...{ postgres: empty(), temporal: empty(), workflows: empty(), clients: empty() },
};
export const places: Places = globalThis.corridorTests;

/** Starts the resource for the first project that needs it, and ends it after the last one is done. */
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
