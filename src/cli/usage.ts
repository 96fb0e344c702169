import {
  expectedLine,
  expectedName,
  isPlainLine,
  operatorName,
  type Signature,
} from '../domain/operator.js';

/** A command that was called wrongly: its message says what was expected. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The flags of a command by their names, as they were typed. */
export type Flags = Readonly<Record<string, string | boolean | undefined>>;

/** A flag that cannot be left out. */
export function requiredFlag(flags: Flags, name: string): string {
  const value = flags[name];
  if (typeof value === 'string' && value.trim() !== '') return value;
  throw new UsageError(`--${name} is missing.`);
}

/** Who gives a command and why; each that changes something leaves them in the audit. */
export function signatureOf(flags: Flags): Signature {
  const operator = operatorName(requiredFlag(flags, 'operator'));
  if (operator === undefined) throw new UsageError(`--operator expects ${expectedName}.`);
  const reason = requiredFlag(flags, 'reason');
  if (!isPlainLine(reason)) throw new UsageError(`--reason expects ${expectedLine}.`);
  return { operator, reason };
}

export const usage = `corridor: cross-currency payouts

  corridor start [options]      run the whole stack until Ctrl-C
  corridor demo [options]       send one payout through its own stack and show what happens
    --batch N                   send a batch of N payouts instead, up to 10,000
    --data DIR                  data directory (.corridor; for the demo .corridor/demo)
    --reset                     empty the data directory first
    --api-port N  --metrics-port N  --temporal-port N  --temporal-ui-port N
    --postgres-port N  --bank-port N
                                ports; 0 picks a free one (default for the demo)

  corridor migrate              migrate the database to the latest schema

  Commands below that change something require --operator NAME --reason TEXT, for the audit log:

  corridor account open --name TEXT [--mode test|live]
  corridor account fund --account ID --currency CODE --amount 1000.00

  corridor keys list --account ID
  corridor keys create --account ID [--name NAME] [--scopes LIST] [--expires ISO-TIME]
    --name NAME                 key name, for at most two active keys (default: default)
    --scopes LIST               read,write,payouts:create,webhooks (read,write: full access)
  corridor keys roll ID [--overlap HOURS] [--expires ISO-TIME]
                                create a key like it; the old one works for 24 more hours
  corridor keys revoke ID       revoke a key immediately

  corridor payouts list         list every payout that needs an operator
  corridor payouts show ID      show what happened to it and who did what
  corridor payouts retry|settle|fail|extend|approve|cancel ID
    settle   --evidence TEXT    settle on evidence that the rail has paid
    fail     [--statement-date YYYY-MM-DD]
                                void the key at the rail and release the hold
    extend   --until ISO-TIME   extend the deadline of the rail
    approve  --proposal ID      execute what another operator has proposed
  corridor payouts late-return|clear-suspense|reverse|correct ID
                                correct the books; a second operator must always approve
    late-return --amount 10.00  book what came back of a payment made after release
    clear-suspense --charge customer|house
                                choose who pays for what is left in suspense
    reverse  --entry ID         reverse an entry that should never have been posted
    correct  --postings rail_settlement:EUR:-1.50,return_costs:EUR:1.50
                                book any postings that sum to zero
  corridor batches list         list the batches in progress
  corridor batches show ID      show its counters
  corridor batches pause|resume ID
                                hold back payouts not yet submitted to the rail, or continue
  corridor rates list           list the rates that jumped and wait for approval
  corridor rates accept|reject ID
  corridor rates use reference|ecb
                                use rates from this provider only
  corridor reconcile            compare the bank's statements with the ledger

All commands except start and demo use DATABASE_URL and TEMPORAL_ADDRESS, or the stack running
in --data DIR.`;
