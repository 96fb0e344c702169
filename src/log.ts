import { type Logger, pino } from 'pino';
import { secretFields } from './domain/fieldRule.js';

/** Fields that are redacted in every log line, at the top level of the logged object or one level below. */
export const secretNames: readonly string[] = ['authorization', 'secret', 'key', ...secretFields];
const redacted = secretNames.flatMap((name) => [name, `*.${name}`]);

/** Creates a logger that writes to standard output, one JSON object per line. */
export function createLog(options: { readonly part: string; readonly level: string }): Logger {
  const settings = {
    level: options.level,
    base: { part: options.part },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: redacted, censor: '[redacted]' },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return pino(settings, bufferedOutput());
}

/** Log lines are buffered for at most this long: too short to notice when tailing the log. */
const writeAfterMs = 10;

/** Buffers lines and writes them together. It flushes on exit, so only a hard kill loses lines. */
function bufferedOutput() {
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

/** Patterns of secrets in callers' texts, with what replaces them in logs and responses. */
const secrets: readonly (readonly [pattern: RegExp, shown: string])[] = [
  // API keys, including mistyped ones, and webhook endpoint secrets.
  [/\b(cor_(?:test|live)|whsec)_[\w+/=-]+/g, '$1_…'],
  // IBANs (ISO 13616), with or without separators; the last four characters stay visible.
  [/\b[a-z]{2}\d{2}(?:[ -]?[a-z0-9]){7,26}((?:[ -]?[a-z0-9]){4})\b/gi, '…$1'],
];

/**
 * Masks keys and account numbers in a text, because callers put them into paths and into parameters
 * meant for something else.
 */
export function withoutSecrets(text: string): string {
  return secrets.reduce((shown, [pattern, mask]) => shown.replace(pattern, mask), text);
}
