/** The one test, by a part of its name, that has to fail while the bug is in the source. */
export type Catcher = {
  readonly project: 'unit' | 'workflow';
  readonly file: string;
  readonly test: string;
};

/** A mistake that somebody could make: `find` stands exactly once in the file of src. */
export type Bug = {
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly caughtBy: Catcher;
};

const steps = { project: 'workflow', file: 'test/workflow/steps.test.ts' } as const;
const reducer = { project: 'unit', file: 'test/unit/payout.test.ts' } as const;

/** The mistakes that would lose or double money, each of them small and plausible. */
export const bugs: readonly Bug[] = [
  {
    name: 'an unknown answer to a submission releases the hold',
    file: 'src/activities/submission.ts',
    find: 'return { id, unknown: answer.detail };',
    replace: "return { id, fact: { kind: 'rejected', code: 'NARR' } };",
    caughtBy: { ...steps, test: 'a payout whose outcome is unknown stays held' },
  },
  {
    name: 'a key that the rail does not know releases the hold',
    file: 'src/activities/lookup.ts',
    find: "return answer === undefined || answer.kind === 'not_found' ? undefined : answer;",
    replace:
      "if (answer?.kind !== 'not_found') return answer;\n" +
      "  return { kind: 'rejected', code: 'NARR' };",
    caughtBy: { ...steps, test: 'a payout whose outcome is unknown stays held' },
  },
  {
    name: 'every call of the rail has a new key',
    file: 'src/domain/payout.ts',
    find: '  return payoutId;',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is source text
    replace: '  return `${payoutId}-${Math.random()}`;',
    caughtBy: { ...reducer, test: 'the key at the rail is the same at every repeat' },
  },
  {
    name: 'a repeated submission has a new key',
    file: 'src/activities/submission.ts',
    find: 'key: railKey(id), amountMinor,',
    replace: "key: railKey(id) + (sent.wasSubmitted ? '-again' : ''), amountMinor,",
    caughtBy: { ...steps, test: 'a payout whose outcome is unknown stays held' },
  },
  {
    name: 'a settlement is posted whatever the status is',
    file: 'src/domain/factEffect.ts',
    find: "return mismatch(state, fact, 'settled');\n",
    replace:
      "return mismatch(state, fact, 'settled');\n" +
      "  if (state.status !== 'processing') return move('settled');\n",
    caughtBy: { ...reducer, test: 'handles settled from the rail' },
  },
  {
    name: 'the events are written after the transaction',
    file: 'src/activities/applyFacts.ts',
    find: 'const subscribed = await announce(sql, moved);',
    replace: "await sql.unsafe('commit; begin');\n  const subscribed = await announce(sql, moved);",
    caughtBy: { ...steps, test: 'it fails at an event' },
  },
  {
    name: 'the events are written on another connection',
    file: 'src/db/client.ts',
    find: 'const result = await work(sql);\n          if',
    replace: `const writesEvents = (text: unknown) => String(text).includes('insert into events');
          const apply = (inside: Sql, self: unknown, args: unknown[]) =>
            Reflect.apply(writesEvents(args[0]) ? database : inside, self, args);
          const result = await work(new Proxy(sql, { apply }));
          if`,
    caughtBy: { ...steps, test: 'it fails at the commit' },
  },
  {
    name: 'a fact that has moved a payout counts as not applied',
    file: 'src/db/payouts.ts',
    find: 'applied_facts = p.applied_facts || t.applied_facts::bigint[],',
    replace: 'applied_facts = p.applied_facts,',
    caughtBy: { ...steps, test: 'it fails at the mark that the fact is applied' },
  },
  {
    name: 'each item of a batch has the whole limit',
    file: 'src/domain/sendingLimits.ts',
    find: 'usedMinor + taken :',
    replace: 'usedMinor :',
    caughtBy: {
      project: 'unit',
      file: 'test/unit/sendingLimits.test.ts',
      test: 'payouts of one decision share what a limit has left',
    },
  },
  {
    name: 'a cancellation does not look again under the lock',
    file: 'src/activities/operator.ts',
    find: 'now.lastSentAt?.getTime() === then.lastSentAt?.getTime()',
    replace: 'true',
    caughtBy: { ...steps, test: 'a cancellation that was checked before the submission began' },
  },
  {
    name: 'a cancellation looks again without a lock',
    file: 'src/db/payouts.ts',
    find: ' order by p.id for no key update`',
    replace: ' order by p.id`',
    caughtBy: { ...steps, test: 'a cancellation that was checked before the submission began' },
  },
  {
    name: 'a worker lets an operator approve what they have proposed',
    file: 'src/domain/operator.ts',
    find: 'return proposal.operator !== operator',
    replace: "return proposal.operator !== ''",
    caughtBy: { ...steps, test: 'no operator approves their own proposal' },
  },
  {
    name: 'the database lets an operator approve what they have proposed',
    file: 'src/db/migrations/0039_honest_lines.sql',
    find: ' and p.operator <> new.operator',
    replace: '',
    caughtBy: { ...steps, test: 'no operator approves their own proposal' },
  },
  {
    name: 'a statement that is cut short proves that an order was not paid',
    file: 'src/rails/sandbox/wire.ts',
    find: 'every((minor) => minor === 0n)',
    replace: 'every((minor) => minor >= 0n)',
    caughtBy: {
      project: 'unit',
      file: 'test/unit/bank-answers.test.ts',
      test: 'is no proof of anything if it lacks a debit',
    },
  },
];
