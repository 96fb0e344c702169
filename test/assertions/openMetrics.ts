/** A sample: name, labels, value; no timestamp and no exemplar. */
const sampleForm =
  /^([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"(?:,(?=[a-zA-Z_])|(?=\})))*)\})? (\+Inf|-Inf|NaN|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/;
const describedForm =
  /^# (?:TYPE ([\w:]+) (\w+)|HELP ([\w:]+) (?:[^"\\]|\\[\\"n])*|UNIT ([\w:]+) \w+)$/;

/** What samples of each type are named beside the family. */
const suffixes: Readonly<Record<string, readonly string[]>> = {
  gauge: [''],
  unknown: [''],
  counter: ['_total', '_created'],
  histogram: ['_bucket', '_count', '_sum', '_created'],
  summary: ['', '_count', '_sum', '_created'],
};

/**
 * What breaks the rules of OpenMetrics 1.0 in a text: form of each line, each family once and in one
 * piece, samples named for its type, no sample twice, and an end that is marked.
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
