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
export function masked(text: string): string {
  return secrets.reduce((shown, [pattern, mask]) => shown.replace(pattern, mask), text);
}
