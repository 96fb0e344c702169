import { setImmediate } from 'node:timers/promises';

/** How long one piece of work may hold up all other requests, in milliseconds. */
const sliceMs = 0.5;

/** Resolves when those have gone on that waited before. */
let queue: Promise<void> = Promise.resolve();

/**
 * Makes what long work awaits after each of its steps: a pause whenever its slice is used up.
 * Between two turns of the event loop one slice is done, however much such work there is, so that
 * an ordinary request waits for a slice at each of its own few turns and for no more.
 */
export function createPace(): () => Promise<void> | undefined {
  let startMs = performance.now();
  return () => {
    if (performance.now() - startMs < sliceMs) return undefined;
    queue = queue.then(() => setImmediate());
    return queue.then(() => {
      startMs = performance.now();
    });
  };
}

/** Work in steps of well under a slice each. */
export type Steps<T> = Generator<undefined, T>;

/** Takes the steps in slices, and returns what they come to. */
export async function inSlices<T>(steps: Steps<T>): Promise<T> {
  const pace = createPace();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    const pause = pace();
    if (pause !== undefined) await pause;
  }
}
