/** Prints a line of the demonstration; lines without a label belong to the one above. */
export function line(label: string, text: string): void {
  console.log(`${label.padEnd(12)} ${text}`);
}

/** The time since a reading of the monotonic clock. */
export function seconds(sinceMs: number): string {
  return `${((performance.now() - sinceMs) / 1000).toFixed(2)} s`;
}
