/** Returns a function that makes a value at its first call, and anew once the last value is older than `ms`. */
export function cached<T>(make: () => T, ms = Number.POSITIVE_INFINITY): () => T {
  let last: { readonly value: T; readonly atMs: number } | undefined;
  return () => {
    const atMs = performance.now();
    if (last === undefined || atMs - last.atMs > ms) last = { value: make(), atMs };
    return last.value;
  };
}
