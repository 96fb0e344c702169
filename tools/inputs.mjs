// The measured costs of a payout, and how the capacity tools read other values from the command line.
import { parseArgs } from 'node:util';

/** CPU of a single payout by part: each input with its default and the source of the default. */
export const costs = {
  'api-ms': [6, 'CPU of the API for a single payout (docs/performance.md)'],
  'postgres-ms': [17, 'CPU of PostgreSQL for a single payout (docs/performance.md)'],
  'temporal-ms': [24, 'CPU of Temporal for a single payout (docs/capacity.md)'],
  'worker-ms': [25, 'CPU of the worker for a single payout (docs/capacity.md)'],
};

/** Reads the command line. `--help` lists the inputs; an invalid value ends the program with exit code 2. */
export function readInputs(inputs) {
  const { values } = parseArgs({
    options: {
      ...Object.fromEntries(Object.keys(inputs).map((name) => [name, { type: 'string' }])),
      help: { type: 'boolean', short: 'h' },
    },
  });
  if (values.help) {
    for (const [name, [usual, what]] of Object.entries(inputs))
      console.log(`--${name.padEnd(16)}${String(usual).padStart(9)}  ${what}`);
    process.exit(0);
  }
  return Object.fromEntries(
    Object.entries(inputs).map(([name, [usual, , form = number]]) => {
      const text = values[name] ?? String(usual);
      if (!form.pattern.test(text)) {
        console.error(`--${name}: expected ${form.expected}, such as ${usual}, not ${text}`);
        process.exit(2);
      }
      return [name, form.read(text)];
    }),
  );
}

const number = { pattern: /^\d+(\.\d+)?$/, expected: 'a number', read: Number };
