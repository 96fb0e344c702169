/** A command that was called wrongly: its message says what was expected. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
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
  corridor payouts retry|settle|fail|extend|approve|cancel ID --operator NAME --reason TEXT
    settle   --evidence TEXT    the rail has paid
    fail     [--statement-date YYYY-MM-DD]
                                void the key at the rail and give the money back
    extend   --until ISO-TIME   wait for the rail until then
    approve  --proposal ID      carry out what another person has proposed
  corridor batches list         every batch that is under way
  corridor batches show ID      its counters
  corridor batches pause|resume ID
                                withhold what the rail has not been given, and go on
  corridor rates list           every rate that jumped and waits for a person
  corridor rates accept|reject ID --operator NAME --reason TEXT
  corridor rates use reference|ecb --operator NAME --reason TEXT
                                take rates of this provider alone
  corridor reconcile            the bank's statements against the ledger

All but start and demo use DATABASE_URL and TEMPORAL_ADDRESS, or the stack that runs in
--data DIR.`;
