/**
 * Resolves with the first signal that asks this process to end. From the call on, no such
 * signal ends it by itself: it has parts to stop first.
 */
export function interruption(): Promise<'interrupted'> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => resolve('interrupted'));
    }
  });
}
