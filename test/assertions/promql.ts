import { parser } from '@prometheus-io/lezer-promql';

/** Parses an expression with Prometheus' own grammar. Returns its metrics and its syntax errors. */
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

/** Metrics that Prometheus itself generates. */
const ofPrometheus = new Set(['up', 'ALERTS']);

/** The metrics that processes must export for these expressions, without histogram suffixes. */
export function metricsNamedIn(expressions: readonly string[]): ReadonlySet<string> {
  const names = expressions.flatMap((expression) => [...readPromql(expression).metrics]);
  const families = names.map((name) => name.replace(/_(bucket|count|sum)$/, ''));
  return new Set(families.filter((name) => !ofPrometheus.has(name)));
}
