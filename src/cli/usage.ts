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
  corridor demo [options]       send one payout through a stack of its own, and show it
    --batch N                   send a batch of N payouts instead, up to 10,000
    --data DIR                  where data is kept (.corridor; the demo: .corridor/demo)
    --reset                     empty it first
    --api-port N  --metrics-port N  --temporal-port N  --temporal-ui-port N
    --postgres-port N  --bank-port N
                                ports; 0 picks a free one (the demo does)

  corridor migrate              bring the database to the newest schema
  Whatever changes something takes --operator NAME --reason TEXT, and leaves a line in the audit:

  corridor account open --name TEXT [--mode test|live]
  corridor account fund --account ID --currency CODE --amount 1000.00

  corridor keys list --account ID
  corridor keys create --account ID [--name NAME] [--scopes LIST] [--expires ISO-TIME]
    --name NAME                 two keys of one name may be active at a time (default)
    --scopes LIST               read,write,payouts:create,webhooks (read,write: everything)
  corridor keys roll ID [--overlap HOURS] [--expires ISO-TIME]
                                make a new key like it; the old one works 24 hours more
  corridor keys revoke ID       end a key at once

  corridor payouts list         every payout that needs a person
  corridor payouts show ID      what happened to it, and who did what
  corridor payouts retry|settle|fail|extend|approve|cancel ID
    settle   --evidence TEXT    the rail has paid
    fail     [--statement-date YYYY-MM-DD]
                                void the key at the rail and give the money back
    extend   --until ISO-TIME   wait for the rail until then
    approve  --proposal ID      carry out what another person has proposed
  corridor payouts late-return|clear-suspense|reverse|correct ID
                                correct the books; another person approves it, whatever the sum
    late-return --amount 10.00  so much of a payment after release has come back
    clear-suspense --charge customer|house
                                who pays for what is left of it in suspense
    reverse  --entry ID         an entry that should never have been posted
    correct  --postings rail_settlement:EUR:-1.50,return_costs:EUR:1.50
                                any postings that sum to zero
  corridor batches list         every batch that is under way
  corridor batches show ID      its counters
  corridor batches pause|resume ID
                                withhold what the rail has not been given, and go on
  corridor rates list           every rate that jumped and waits for a person
  corridor rates accept|reject ID
  corridor rates use reference|ecb
                                take rates of this provider alone
  corridor reconcile            the bank's statements against the ledger

All but start and demo use DATABASE_URL and TEMPORAL_ADDRESS, or the stack that runs in
--data DIR.`;
