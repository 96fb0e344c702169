/** Something that every project of a run uses, and what ends it. */
export type Shared<T> = { readonly value: T; readonly end: () => Promise<void> };

type Entry = { readonly started: Promise<Shared<unknown>>; users: number };

/** Vitest loads a global setup anew for each project, in one process: only this is the same in all. */
const perProcess = globalThis as { corridorTests?: Map<string, Entry> };
perProcess.corridorTests ??= new Map();
const entries = perProcess.corridorTests;

/** Starts it for the first project that asks; it ends when the last one that has asked is done. */
export async function oncePerRun<T>(
  name: string,
  start: () => Promise<Shared<T>>,
): Promise<Shared<T>> {
  const entry = entries.get(name) ?? { started: start(), users: 0 };
  entries.set(name, entry);
  entry.users += 1;
  // Under one name there is one kind of thing.
  const { value, end } = (await entry.started) as Shared<T>;
  return {
    value,
    end: async () => {
      entry.users -= 1;
      if (entry.users > 0) return;
      entries.delete(name);
      await end();
    },
  };
}
