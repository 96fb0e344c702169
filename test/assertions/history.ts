import { beneficiary } from '../fixtures/requestPayout.js';

/** A history as JSON without what is of the machine that made it: nobody needs it to replay. */
export function withoutMachine(history: string): string {
  const blank: Readonly<Record<string, string>> = { identity: 'recorded', stackTrace: '' };
  const parsed: unknown = JSON.parse(history, (key, value: unknown) =>
    typeof value === 'string' ? (blank[key] ?? value) : value,
  );
  return `${JSON.stringify(parsed, null, 2)}\n`;
}

/** What a person could be told by: an IBAN (ISO 13616), or the name that tests pay to. */
const personal = new RegExp(
  `\\b[A-Z]{2}\\d{2}[A-Z0-9]{11,30}\\b|${beneficiary.name.replace(' ', '|')}`,
  'g',
);

/** Every text of a history in JSON, its payloads decoded. */
export function textsIn(history: string): readonly string[] {
  const texts: string[] = [];
  JSON.parse(history, (key, value: unknown) => {
    if (typeof value !== 'string') return value;
    texts.push(key === 'data' ? Buffer.from(value, 'base64').toString('utf8') : value);
    return value;
  });
  return texts;
}

/** The personal data in the payloads of a history in JSON, and anywhere else in it. */
export function personalDataIn(history: string): readonly string[] {
  return textsIn(history).flatMap((text) => text.match(personal) ?? []);
}
