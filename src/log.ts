import { type Logger, pino } from 'pino';

/** What a log line never shows, at the top of the object that is logged or one level below. */
export const secretNames: readonly string[] = [
  'authorization',
  'secret',
  'key',
  'iban',
  'account_number',
  'pix_key',
  'tax_id',
  'date_of_birth',
  'registration_number',
];
const redacted = secretNames.flatMap((name) => [name, `*.${name}`]);

/** Structured logs on standard output, one JSON object a line. */
export function createLog(options: { readonly part: string; readonly level: string }): Logger {
  const settings = {
    level: options.level,
    base: { part: options.part },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: redacted, censor: '[redacted]' },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return pino(settings, together());
}

/** What is logged within so long is one write: nobody who reads along notices. */
const writeAfterMs = 10;

/** Writes lines together, also at an exit: only what kills the process at once loses some. */
function together() {
  const output = pino.destination({ dest: 1, sync: true, minLength: 8 * 1024 });
  let isDue = false;
  const flush = () => {
    isDue = false;
    output.flushSync();
  };
  process.once('exit', flush);
  return {
    write: (line: string) => {
      output.write(line);
      if (!isDue) setTimeout(flush, writeAfterMs).unref();
      isDue = true;
    },
  };
}

/** What is found in texts that callers sent, and may not be repeated to anybody. */
const secrets: readonly (readonly [pattern: RegExp, shown: string])[] = [
  // API keys, also mistyped ones, and the secrets of webhook endpoints.
  [/\b(cor_(?:test|live)|whsec)_[\w+/=-]+/g, '$1_…'],
  // IBANs (ISO 13616), as they are written by machines and by people; the last four are shown.
  [/\b[a-z]{2}\d{2}(?:[ -]?[a-z0-9]){7,26}((?:[ -]?[a-z0-9]){4})\b/gi, '…$1'],
];

/**
 * A text without the keys and account numbers that stand in it: people put them into paths,
 * and into parameters that are meant for something else.
 */
export function withoutSecrets(text: string): string {
  return secrets.reduce((shown, [pattern, mask]) => shown.replace(pattern, mask), text);
}
