import { parser } from '@prometheus-io/lezer-promql';

/** What Prometheus' own grammar finds in an expression: the metrics that it names, and where it is wrong. */
export function readPromql(expression: string) {
  const metrics = new Set<string>();
  const mistakes: string[] = [];
  parser.parse(expression).iterate({
    enter: ({ name, from, to, type }) => {
      if (name === 'Identifier') metrics.add(expression.slice(from, to));
      if (type.isError) mistakes.push(`at ${from}: ${expression.slice(from)}`);
    },
  });
  return { metrics, mistakes };
}

/** A metric of Prometheus' own, made of others. */
const ofPrometheus = new Set(['up', 'ALERTS']);

/** The metrics that processes have to export for these expressions, without the suffixes of histograms. */
export function metricsNamedIn(expressions: readonly string[]): ReadonlySet<string> {
  const names = expressions.flatMap((expression) => [...readPromql(expression).metrics]);
  const families = names.map((name) => name.replace(/_(bucket|count|sum)$/, ''));
  return new Set(families.filter((name) => !ofPrometheus.has(name)));
}
