import { count, observe } from '../metrics.js';
import { traceCall } from '../spans.js';
import type { Rail } from './rail.js';

type Operation = 'submit' | 'lookup' | 'void' | 'statement';

/** Wraps a rail to time its calls and count its answers. A missing answer counts as `unknown`. */
export function metered<T extends Rail>(rail: T): T {
  const time = async <A>(
    operation: Operation,
    asked: number,
    call: () => Promise<A>,
    answersOf: (answer: A) => readonly string[],
  ): Promise<A> => {
    const labels = { rail: rail.name, operation };
    const startedMs = performance.now();
    let answers: readonly string[] = [];
    try {
      const answer = await traceCall(`rail ${operation}`, { ...labels, asked }, call);
      answers = answersOf(answer);
      return answer;
    } finally {
      observe('rail_call_seconds', labels, (performance.now() - startedMs) / 1000);
      for (const answer of answers) count('rail_answers_total', { ...labels, answer });
      const unanswered = Math.max(asked - answers.length, 0);
      if (unanswered > 0) count('rail_answers_total', { ...labels, answer: 'unknown' }, unanswered);
    }
  };
  const kindsOf = (answers: readonly { readonly kind: string }[]) =>
    answers.map(({ kind }) => kind);
  const asOne = (answer: string) => [answer];
  const asRead = () => ['read'];
  return {
    ...rail,
    submit: (all) => time('submit', all.length, () => rail.submit(all), kindsOf),
    lookup: (keys) => time('lookup', keys.length, () => rail.lookup(keys), kindsOf),
    voidKey: (key) => time('void', 1, () => rail.voidKey(key), asOne),
    statement: (date) => time('statement', 1, () => rail.statement(date), asRead),
  };
}
