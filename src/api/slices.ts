import { setImmediate } from 'node:timers/promises';

/** Maximum time, in milliseconds, for which one piece of work may block all other requests. */
const sliceMs = 0.5;

/** Resolves when all work that paused earlier has resumed. */
let queue: Promise<void> = Promise.resolve();

/**
 * Creates a function that long work calls and awaits after each of its steps: it pauses the work whenever its
 * slice is used up. Only one slice runs between two turns of the event loop, however much such work there is,
 * so an ordinary request waits for at most one slice at each of its own few turns.
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

/** Work that is divided into steps of well under a slice each. */
export type Steps<T> = Generator<undefined, T>;

/** Runs the steps in slices and returns their result. */
export async function inSlices<T>(steps: Steps<T>): Promise<T> {
  const pace = createPace();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    const pause = pace();
    if (pause !== undefined) await pause;
  }
}
