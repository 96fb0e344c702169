/** A sample: name, labels, value; without a timestamp or an exemplar. */
const sampleForm =
  /^([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"(?:,(?=[a-zA-Z_])|(?=\})))*)\})? (\+Inf|-Inf|NaN|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/;
const describedForm =
  /^# (?:TYPE ([\w:]+) (\w+)|HELP ([\w:]+) (?:[^"\\]|\\[\\"n])*|UNIT ([\w:]+) \w+)$/;

/** The suffixes that samples of each type add to the name of their family. */
const suffixes: Readonly<Record<string, readonly string[]>> = {
  gauge: [''],
  unknown: [''],
  counter: ['_total', '_created'],
  histogram: ['_bucket', '_count', '_sum', '_created'],
  summary: ['', '_count', '_sum', '_created'],
};

/**
 * Returns the violations of OpenMetrics 1.0 in a text. Checked are: the syntax of each line, that every
 * family is contiguous, that sample names fit their type, that no sample is repeated, and the end mark.
 */
export function openMetricsFaults(text: string): readonly string[] {
  const faults: string[] = [];
  if (!text.endsWith('\n# EOF\n')) faults.push('it does not end with # EOF');
  const over = new Set<string>();
  const seen = new Set<string>();
  let family = { name: '', type: 'unknown' };
  const begin = (name: string) => {
    if (name === family.name) return;
    over.add(family.name);
    if (over.has(name)) faults.push(`${name} is in two pieces`);
    family = { name, type: 'unknown' };
  };
  for (const line of text
    .replace(/# EOF\n$/, '')
    .trimEnd()
    .split('\n')) {
    const described = describedForm.exec(line);
    if (described !== null) {
      const [, typed, type, helped, united] = described;
      begin(typed ?? helped ?? united ?? '');
      if (type !== undefined) family = { ...family, type };
      continue;
    }
    const [, name = '', labels = ''] = sampleForm.exec(line) ?? [];
    if (name === '') faults.push(`cannot be read: ${line}`);
    const allowed = (suffixes[family.type] ?? []).map((suffix) => family.name + suffix);
    if (!allowed.includes(name)) faults.push(`${name} stands under ${family.type} ${family.name}`);
    if (seen.has(`${name}{${labels}}`)) faults.push(`twice: ${name}{${labels}}`);
    seen.add(`${name}{${labels}}`);
  }
  return faults;
}
