// Generates src/domain/iso4217.json from ISO 4217's list one of 25 June 2024, as contained in the package
// currency-codes, plus the amendments that came into force up to 17 September 2026. With --check it only
// compares, as test/unit/money.test.ts does.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const list = fileURLToPath(import.meta.resolve('currency-codes/iso-4217-list-one.xml'));
const table = fileURLToPath(new URL('../src/domain/iso4217.json', import.meta.url));

/**
 * Differences in the list of 17 September 2026: the Caribbean guilder replaced the Antillean guilder on 31
 * March 2025, Bulgaria adopted the euro on 1 January 2026, and Cuba's convertible peso was withdrawn.
 */
const removed = ['ANG', 'BGN', 'CUC'];
const added = { XCG: { digits: 2, name: 'Caribbean Guilder' } };

/** Units of account that are used in contracts, although ISO marks them as funds. */
const keptFunds = ['CLF', 'UYW'];

/** Unique names: two currencies have the same name in the list. */
const names = { VED: 'Bolívar Soberano (VED)' };

function currenciesOf(xml) {
  const entries = Array.from(xml.matchAll(/<CcyNtry>(.*?)<\/CcyNtry>/gs), ([entry]) => {
    const text = (tag) => new RegExp(`<${tag}[^>]*>([^<]*)</${tag}>`).exec(entry)?.[1]?.trim() ?? '';
    const isFund = /<CcyNm IsFund="true">/i.test(entry);
    return { code: text('Ccy'), name: text('CcyNm'), digits: text('CcyMnrUnts'), isFund };
  });
  // Countries without a currency have no code. Metals, units of account and test codes have no minor unit.
  return entries
    .filter(({ code, digits }) => code !== '' && digits !== 'N.A.')
    .filter(({ code, isFund }) => !isFund || keptFunds.includes(code))
    .map(({ code, name, digits }) => [
      code,
      { digits: Number.parseInt(digits, 10), name: names[code] ?? name },
    ]);
}

const currencies = Object.fromEntries(currenciesOf(readFileSync(list, 'utf8')));
Object.assign(currencies, added);
for (const code of removed) delete currencies[code];
const lines = Object.keys(currencies)
  .sort()
  .map((code) => {
    const { digits, name } = currencies[code];
    return `  "${code}": { "digits": ${digits}, "name": ${JSON.stringify(name)} }`;
  });
const text = `{\n${lines.join(',\n')}\n}\n`;
if (process.argv.includes('--check')) {
  if (readFileSync(table, 'utf8') !== text) {
    console.error('src/domain/iso4217.json is not what node tools/iso4217.mjs makes.');
    process.exitCode = 1;
  }
} else {
  writeFileSync(table, text);
}
