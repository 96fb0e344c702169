import { interruption } from './interruption.js';
import { type Stack, type StackOptions, startStack } from './localStack.js';

/** Runs the whole stack until Ctrl-C or until one of its parts exits. Returns the exit code. */
export async function start(options: Omit<StackOptions, 'onProgress'>): Promise<number> {
  const interrupted = interruption();
  const stack = await startStack({ ...options, onProgress: (line) => console.log(`  ${line}`) });
  console.log(welcome(stack, options.directory));
  const end = await Promise.race([interrupted, stack.broken]);
  if (end !== 'interrupted') {
    const { code, signal, lastWords } = end.exit;
    console.error(`\n${end.part} has exited (${signal ?? `exit code ${code}`}). Its last output:`);
    for (const line of lastWords) console.error(`  ${line}`);
  }
  console.log('\nStopping every part …');
  await stack.stop();
  return end === 'interrupted' ? 0 : 1;
}

function welcome({ description }: Stack, directory: string): string {
  const { api_url: api, api_key: key, temporal_ui_url: ui } = description;
  return `
Corridor is ready. Data, logs and stack.json are in ${directory}.

  API          ${api}
  Metrics      ${description.metrics_url}
  Docs         ${api}/docs
  Temporal UI  ${ui ?? '(as configured)'}
  Account      a test account with 1,000,000.00 each of USD, EUR and GBP

Paste this to price a corridor; README.md continues from here to a settled payout:

  curl -s ${api}/v1/quotes -H 'Authorization: Bearer ${key}' \\
    -d source_currency=USD -d destination_currency=EUR -d amount=125000

Ctrl-C stops every part.`;
}
