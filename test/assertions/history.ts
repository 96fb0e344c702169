import { beneficiary } from '../fixtures/requestPayout.js';

/** Removes details of the recording machine from a history in JSON: a replay does not need them. */
export function withoutMachine(history: string): string {
  const blank: Readonly<Record<string, string>> = { identity: 'recorded', stackTrace: '' };
  const parsed: unknown = JSON.parse(history, (key, value: unknown) =>
    typeof value === 'string' ? (blank[key] ?? value) : value,
  );
  return `${JSON.stringify(parsed, null, 2)}\n`;
}

/** Values that could identify a person: an IBAN (ISO 13616), or the beneficiary name used in tests. */
const personal = new RegExp(
  `\\b[A-Z]{2}\\d{2}[A-Z0-9]{11,30}\\b|${beneficiary.name.replace(' ', '|')}`,
  'g',
);

/** Every text in a history in JSON, with payloads decoded. */
export function textsIn(history: string): readonly string[] {
  const texts: string[] = [];
  JSON.parse(history, (key, value: unknown) => {
    if (typeof value !== 'string') return value;
    texts.push(key === 'data' ? Buffer.from(value, 'base64').toString('utf8') : value);
    return value;
  });
  return texts;
}

/** All personal data in a history in JSON, in its payloads or elsewhere. */
export function personalDataIn(history: string): readonly string[] {
  return textsIn(history).flatMap((text) => text.match(personal) ?? []);
}
