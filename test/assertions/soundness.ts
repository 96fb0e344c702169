import { type Database, exactlyOne } from '../../src/db/client.js';
import { isUnapplied, type LockedPayout } from '../../src/db/payouts.js';
import { isFinal, statusHistory } from '../../src/domain/payout.js';
import type { Interleaving } from '../fixtures/interleaving.js';

/**
 * Invariants of payouts that must hold whatever happened to them. The database keeps a diary for them
 * (`keepDiary`): reports, status changes, postings and commands, in order and with their transactions,
 * so that nothing has to be checked between steps.
 */

/** Makes the database record every relevant write together with its transaction. */
export async function keepDiary(database: Database): Promise<void> {
  await database.unsafe(diary);
}

const diary = `
  create table virtual.diary (
    id bigint generated always as identity primary key,
    transaction text not null default pg_current_xact_id()::text,
    payout_id text not null,
    kind text not null,
    detail jsonb not null
  );
  create index on virtual.diary (payout_id);
  grant insert, select on virtual.diary to public;
  create function virtual.note() returns trigger language plpgsql as $$
  declare
    subject text;
    detail jsonb;
  begin
    if tg_argv[0] = 'moved' then
      subject := new.id;
      detail := jsonb_build_object('from', old.status, 'to', new.status,
                                   'attention', old.attention_reason);
    elsif tg_argv[0] = 'commanded' then
      subject := new.subject_id;
      detail := jsonb_build_object('command', new.command ->> 'kind', 'outcome', new.outcome);
    elsif tg_argv[0] = 'posted' then
      subject := new.payout_id;
      detail := jsonb_build_object('entry', new.kind);
    else
      subject := new.payout_id;
      detail := new.fact;
    end if;
    insert into virtual.diary (payout_id, kind, detail) values (subject, tg_argv[0], detail);
    return null;
  end $$;
  create trigger diary after update of status on payouts for each row
    when (old.status is distinct from new.status) execute function virtual.note('moved');
  create trigger diary after insert on ledger_entries for each row
    when (new.payout_id is not null) execute function virtual.note('posted');
  create trigger diary after insert on rail_inbox for each row
    when (new.payout_id is not null) execute function virtual.note('reported');
  create trigger diary after insert on operator_actions for each row
    execute function virtual.note('commanded');`;

type Line = { readonly payoutId: string; readonly transaction: string } & (
  | {
      readonly kind: 'moved';
      readonly detail: {
        readonly from: string;
        readonly to: string;
        readonly attention: string | null;
      };
    }
  | { readonly kind: 'posted'; readonly detail: { readonly entry: string } }
  | {
      readonly kind: 'reported';
      readonly detail: {
        readonly kind: string;
        readonly amountMinor?: string;
        readonly currency?: string;
      };
    }
  | {
      readonly kind: 'commanded';
      readonly detail: { readonly command: string; readonly outcome: string };
    }
);

type Evidence = {
  readonly rows: readonly LockedPayout[];
  readonly diary: readonly Line[];
  readonly events: readonly {
    readonly payoutId: string | null;
    readonly type: string;
    readonly sequence: bigint;
  }[];
  readonly unapplied: number;
  readonly unbalanced: number;
  /** Payouts that the sweep will process, by themselves or with their chunk. */
  readonly due: ReadonlySet<string>;
};

async function evidenceOf(database: Database, run: Interleaving): Promise<Evidence> {
  const { accountId, ids } = run;
  const [rows, lines, events, due, [counts]] = await Promise.all([
    run.rowsOf(ids),
    database<Line[]>`
      select payout_id, transaction, kind, detail from virtual.diary
       where payout_id = any (${ids}) order by id`,
    database<Evidence['events'][number][]>`
      select subject_id as payout_id, type, sequence from events where account_id = ${accountId}
       order by sequence`,
    database<{ id: string }[]>`
      select id from payouts p left join batch_chunks c on c.batch_id = p.batch_id and c.number = 0
       where p.id = any (${ids})
         and case when p.driver = p.id then p.wake_at is not null
                  else c.wake_at is not null end`,
    database<{ unapplied: number; unbalanced: number }[]>`
      select (select count(*)::int from rail_inbox i join payouts p on p.id = i.payout_id
               where p.id = any (${ids}) and ${isUnapplied(database)}) as unapplied,
             (select count(*)::int from ledger_balances b
               where account_id = ${accountId} and amount_minor <>
                 (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
                   where p.ledger_account_id = b.ledger_account_id)) as unbalanced`,
  ]);
  return {
    rows,
    diary: lines,
    events,
    due: new Set(due.map(({ id }) => id)),
    ...exactlyOne(counts),
  };
}

/** Describes every violation of the invariants in a run, one sentence each; empty if there is none. */
export async function faultsOf(database: Database, run: Interleaving): Promise<readonly string[]> {
  const evidence = await evidenceOf(database, run);
  const numbers = evidence.events.map(({ sequence }) => Number(sequence));
  const isGapless = numbers.every((number, index) => number === index + 1);
  return [
    ...run.bugs.map((bug) => `an attempt failed unexpectedly: ${String(bug)}`),
    ...(isGapless ? [] : [`the events are numbered ${numbers.join(' ')}`]),
    ...(evidence.unapplied > 0
      ? [`${evidence.unapplied} facts were reported and not applied`]
      : []),
    ...(evidence.unbalanced > 0 ? ['a balance is not the sum of its postings'] : []),
    ...evidence.rows.flatMap((row) =>
      faultsOfPayout(row, run, evidence).map((fault) => `payout ${nameOf(run, row)}: ${fault}`),
    ),
  ];
}

/** The trace of the payouts that the faults are about, line by line. */
export function storyOf(run: Interleaving, faults: readonly string[]): string {
  const about = new Set(faults.map((fault) => Number(/^payout (\d+)/.exec(fault)?.[1] ?? -1)));
  return run.trace
    .filter(({ index }) => index === -1 || about.has(index))
    .map(({ index, text }) => `${index === -1 ? '  ' : String(index).padStart(2)} ${text}`)
    .join('\n');
}

function nameOf(run: Interleaving, { id, status, statusReason, attentionReason }: LockedPayout) {
  return `${run.ids.indexOf(id)} (${status}, ${statusReason}, parked ${attentionReason})`;
}

function faultsOfPayout(row: LockedPayout, run: Interleaving, evidence: Evidence): string[] {
  const diary = evidence.diary.filter(({ payoutId }) => payoutId === row.id);
  const entries = diary.flatMap((line) => (line.kind === 'posted' ? [line.detail.entry] : []));
  const events = evidence.events.filter(({ payoutId }) => payoutId === row.id);
  return [
    ...faultsOfMoney(row, run, entries),
    ...faultsOfRecord(row, entries, events),
    ...faultsOfAnswers(row, run),
    ...faultsOfEnds(row, run),
    ...faultsOfDisputes(row, diary),
    ...(isLookedAfter(row, evidence) ? [] : ['it is open, but neither parked nor due']),
  ];
}

/** The bank pays at most once, and never pays money that was released to the customer. */
function faultsOfMoney(row: LockedPayout, run: Interleaving, entries: readonly string[]) {
  const { bank, commands } = run;
  const faults: string[] = [];
  const payments = bank.paymentsOf(row.id).length;
  const isMarked = commands.some(
    ({ input, command }) => input.id === row.id && command.kind === 'markSettled',
  );
  if (payments > 1) faults.push(`the bank has paid it ${payments} times`);
  if (payments > 0 && entries.includes('release'))
    faults.push('released, although the bank has paid');
  if (payments === 0 && entries.includes('settle') && !isMarked) {
    faults.push('settled, although the bank has not paid');
  }
  const [payment] = bank.paymentsOf(row.id);
  const settledAt = row.settledAt?.toISOString();
  if (row.status === 'settled' && !isMarked && settledAt !== payment?.bookedAt) {
    faults.push(`settled at ${settledAt}, but paid at ${payment?.bookedAt}`);
  }
  if (entries.includes('return') && bank.returnedOf(row.id) === 0n) {
    faults.push('returned, although the bank has returned nothing');
  }
  return faults;
}

/** Status, history, postings and events agree. */
function faultsOfRecord(
  row: LockedPayout,
  entries: readonly string[],
  events: Evidence['events'],
): string[] {
  const faults: string[] = [];
  const passed = statusHistory(row).map(({ status }) => status);
  if (passed.at(-1) !== row.status) faults.push(`its history ends with ${passed.at(-1)}`);
  const times = statusHistory(row).map(({ at }) => at);
  if (times.some((at, index) => at < (times[index - 1] ?? '')))
    faults.push('the times of its history are out of order');
  const announced = passed.slice(1).filter((status) => status !== 'processing');
  const notified = events.map(({ type }) => type).filter((type) => type !== 'batch.completed');
  if (notified.join() !== announced.map((status) => `payout.${status}`).join()) {
    faults.push(`events ${notified.join(' ')} for the history ${passed.join(' ')}`);
  }
  const isAccepted = passed.includes('processing');
  const due = [
    ...(isAccepted ? ['accept'] : []),
    ...(row.status === 'settled' || row.status === 'returned' ? ['settle'] : []),
    ...(row.status === 'returned' ? ['return'] : []),
    ...(isAccepted && (row.status === 'failed' || row.status === 'canceled') ? ['release'] : []),
  ];
  const posted = entries.filter((entry) => entry !== 'late_payment');
  if (posted.toSorted().join() !== due.toSorted().join()) {
    faults.push(`it has the entries ${entries.join(' ')}`);
  }
  return faults;
}

/** The answer to a command matches what happened, however often the command was repeated. */
function faultsOfAnswers(row: LockedPayout, { answers }: Interleaving): string[] {
  const faults: string[] = [];
  const own = answers.filter(({ payoutId }) => payoutId === row.id);
  const first = new Map<string, (typeof own)[number]>();
  for (const answer of own) {
    const { command, outcome, detail, action } = answer;
    const before = first.get(action);
    first.set(action, before ?? answer);
    // A command without an audit line did not reach the payout's driver, so its repeat is a new command.
    const isSame = before === undefined || (outcome === before.outcome && detail === before.detail);
    if (!isSame && before.isAudited) {
      faults.push(`${command.kind} was answered "${before.detail}" and again "${detail}"`);
    }
    if (outcome !== 'done') continue;
    if (command.kind === 'cancel' && row.status !== 'canceled') {
      faults.push(`a cancellation was answered "${detail}"`);
    }
    if (command.kind === 'failAndRelease' && !/^(failed|canceled|returned)$/.test(row.status)) {
      faults.push(`a release was answered "${detail}"`);
    }
  }
  return faults;
}

/** A final status has a cause: the bank's rejection, an operator's release, or a cancellation. */
function faultsOfEnds({ id, status }: LockedPayout, run: Interleaving): string[] {
  const commands = run.commands.filter(({ input }) => input.id === id);
  const has = (kind: string) => commands.some(({ command }) => command.kind === kind);
  if (status === 'failed' && !run.bank.hasRejected(id) && !has('failAndRelease')) {
    return ['failed, although neither the bank nor an operator has refused it'];
  }
  if (status === 'canceled' && !has('cancel') && !run.isBatchCanceled) {
    return ['canceled without a cancellation'];
  }
  return [];
}

/** While facts contradict each other, only a command of a person moves the customer's money. */
function faultsOfDisputes(row: LockedPayout, diary: readonly Line[]): string[] {
  const faults: string[] = [];
  const people = new Set(
    diary.flatMap((line) =>
      line.kind === 'commanded' &&
      line.detail.command !== 'cancel' &&
      line.detail.outcome === 'done'
        ? [line.transaction]
        : [],
    ),
  );
  let isContradicted = false;
  /** Whether a refusal or a return was reported before the contradiction, and so justifies a refund. */
  let wasRefused = false;
  for (const line of diary) {
    if (line.kind === 'reported') {
      isContradicted ||= isMismatch(row, line.detail);
      wasRefused ||= !isContradicted && line.detail.kind !== 'settled';
    }
    const isPersons = people.has(line.transaction);
    if (line.kind === 'commanded' && isPersons) isContradicted = false;
    if (isPersons) continue;
    if (line.kind === 'moved' && disputes.has(line.detail.attention ?? '')) {
      const { from, to, attention } = line.detail;
      if (to !== 'sent') faults.push(`moved from ${from} to ${to} while parked as ${attention}`);
    }
    const isBack = line.kind === 'posted' && /^(release|return)$/.test(line.detail.entry);
    if (isBack && isContradicted && !wasRefused) {
      faults.push('refunded although the facts contradict each other');
    }
    const isReturn = line.kind === 'posted' && line.detail.entry === 'return';
    if (isReturn && isShort(row))
      faults.push('credited in full although less than 90 % was returned');
  }
  return faults;
}

const disputes = new Set(['amount_mismatch', 'contradiction', 'return_short']);

/** Whether less than 90 % of the sent amount was returned. */
function isShort({ receiveMinor, returnedMinor }: LockedPayout): boolean {
  return (returnedMinor ?? 0n) * 100n < (receiveMinor ?? 0n) * 90n;
}

function isMismatch(
  row: LockedPayout,
  fact: { readonly kind: string; readonly amountMinor?: string; readonly currency?: string },
): boolean {
  if (fact.kind !== 'settled') return false;
  return fact.amountMinor !== `${row.receiveMinor}` || fact.currency !== row.destinationCurrency;
}

/** Whether the payout is final, parked for an operator, due itself, or an item of a due chunk. */
function isLookedAfter(row: LockedPayout, { due }: Evidence): boolean {
  return isFinal(row.status) || row.attentionReason !== null || due.has(row.id);
}
