/**
 * Resolves on the first signal to terminate. After this call such signals no longer kill the process,
 * because it has to stop its parts first.
 */
export function interruption(): Promise<'interrupted'> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => resolve('interrupted'));
    }
  });
}
