/** Prints a line of the demo; lines without a label belong to the one above. */
export function line(label: string, text: string): void {
  console.log(`${label.padEnd(12)} ${text}`);
}

/** Formats the time elapsed since a reading of the monotonic clock. */
export function seconds(sinceMs: number): string {
  return `${((performance.now() - sinceMs) / 1000).toFixed(2)} s`;
}
