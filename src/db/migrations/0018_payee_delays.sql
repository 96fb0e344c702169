-- Why: who gets hold of a key adds a beneficiary of their own, or changes one, and pays it at once. A
-- large sum to details that nobody has seen yet can wait a day, in which their owner may notice.

create table payee_delays (
  account_id text not null references accounts,
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  -- A payout above it needs details that are at least so old; zero is any payout.
  above_minor bigint not null check (above_minor >= 0),
  hours int not null check (hours between 1 and 720),
  primary key (account_id, currency)
);
grant insert, update, delete on payee_delays to corridor_operator;
