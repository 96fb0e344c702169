/** Prints a table: its first row is the header, and a column is as wide as its widest cell. */
export function printTable(table: readonly (readonly string[])[]): void {
  const widths = table[0]?.map((_, at) => Math.max(...table.map((row) => row[at]?.length ?? 0)));
  const cells = (row: readonly string[]) => row.map((cell, at) => cell.padEnd(widths?.[at] ?? 0));
  for (const row of table) console.log(cells(row).join('  ').trimEnd());
}
