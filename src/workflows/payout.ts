import {
  ActivityFailure,
  allHandlersFinished,
  CancellationScope,
  ContinueAsNew,
  condition,
  continueAsNew,
  getExternalWorkflowHandle,
  isCancellation,
  log,
  setCurrentDetails,
  upsertSearchAttributes,
  uuid4,
  workflowInfo,
} from '@temporalio/workflow';
import type { PayoutSnapshot } from '../activities/snapshot.js';
import { detailsOf } from '../domain/commandRules.js';
import { unexecuted } from '../domain/operator.js';
import {
  type Attention,
  type AttentionReason,
  attentionReasons,
  isFinal,
  type PayoutStatus,
} from '../domain/payout.js';
import { type Command, flagOf, receiveCommands } from './commands.js';
import { type PayoutInput, railUpdateSignal, searchAttributes } from './messages.js';
import {
  cancellation,
  ledgerStep,
  localSubmit,
  operation,
  railPoll,
  railSubmit,
  shouldContinueAsNew,
} from './proxies.js';

/** How long to wait for a callback before polling. A rail that calls back does so within seconds. */
const callbackPatienceMs = 60_000;

/**
 * The state of a run of the workflow. It is small, because the row is the source of truth: a run that
 * is closed, terminated or reset is started again from the row.
 */
type PayoutRun = {
  readonly payoutId: string;
  /** The payout as the last step has left it. */
  snapshot: PayoutSnapshot | undefined;
  /** Another workflow drives the payout now; this one ends. */
  isSuperseded: boolean;
  readonly signal: ReturnType<typeof flagOf>;
  /** The commands of people, in order of arrival. */
  readonly commands: Command[];
  /** The attention reason in the search attributes, by which operators find the payout. */
  shownAttention: string | undefined;
};

/**
 * Processes one payout from the decision to its final status. It reads the row first and continues
 * from there, so it may be started at any moment and any number of times. It never fails while the
 * payout holds money: it parks for an operator what it cannot resolve.
 */
export async function payout({ payoutId }: PayoutInput): Promise<PayoutStatus | 'superseded'> {
  const run: PayoutRun = {
    payoutId,
    snapshot: undefined,
    isSuperseded: false,
    signal: flagOf(railUpdateSignal, 'Look at the row and the inbox again; carries no data.'),
    commands: [],
    // A new run inherits the search attributes of the run that it continues.
    shownAttention: workflowInfo().typedSearchAttributes.get(searchAttributes.attentionReason),
  };
  receiveCommands(run.commands);
  setCurrentDetails('Requested. The service decides next whether to accept it.');
  await CancellationScope.nonCancellable(async () => {
    let isOpen = true;
    while (isOpen && !run.isSuperseded) {
      try {
        isOpen = await nextStep(run);
      } catch (error) {
        if (error instanceof ContinueAsNew) throw error;
        log.error('a step of the payout failed', { payoutId, error });
        await park(run, 'unexpected_failure', messageOf(error));
      }
    }
    await signalBatch(run);
    await answerLateCommands(run);
  });
  return run.isSuperseded || run.snapshot === undefined ? 'superseded' : run.snapshot.status;
}

/** Answers commands that arrive when nothing is left to do. */
async function answerLateCommands({ commands, isSuperseded }: PayoutRun): Promise<void> {
  while (!allHandlersFinished()) {
    for (const command of commands.splice(0)) {
      command.result = unexecuted(isSuperseded ? elsewhere : finished);
    }
    await condition(() => allHandlersFinished() || commands.length > 0);
  }
}

const finished = 'The payout has just come to its end. Look at it again.';
const elsewhere =
  'The payout is still to be decided in its batch. Send the command again when it is.';

/** Signals the item's batch to read its progress. Has no effect if the batch's workflow is not running. */
async function signalBatch({ isSuperseded }: PayoutRun): Promise<void> {
  const batchId = workflowInfo().typedSearchAttributes.get(searchAttributes.batchId);
  if (batchId === undefined || isSuperseded) return;
  await getExternalWorkflowHandle(batchId)
    .signal(railUpdateSignal)
    .catch(() => undefined);
}

/** Does the next step. Returns false when there is nothing left to do. */
async function nextStep(run: PayoutRun): Promise<boolean> {
  const { snapshot } = run;
  if (snapshot === undefined) {
    await accept(run);
  } else if (hasInput(run) || snapshot.hasUnprocessedEvents) {
    await handleCommandOrEvents(run);
  } else if (shouldContinueAsNew() && !isOver(snapshot)) {
    await continueInNewRun(run);
  } else if (snapshot.attention !== null) {
    await waitForOperator(run, snapshot.attention);
  } else if (snapshot.status === 'pending') {
    await accept(run);
  } else if (snapshot.status === 'processing') {
    await submit(run);
  } else if (snapshot.status === 'sent') {
    await waitForTheRail(run, snapshot.settleInMs);
  } else {
    return false;
  }
  return true;
}

function isOver({ status, attention }: PayoutSnapshot): boolean {
  return isFinal(status) && attention === null;
}

/** Continues as new. The new run reads the row; this one must leave no command unanswered. */
async function continueInNewRun(run: PayoutRun): Promise<void> {
  await condition(() => hasInput(run) || allHandlersFinished());
  if (!hasInput(run)) await continueAsNew<typeof payout>({ payoutId: run.payoutId });
}

/** Decides a pending payout. One that was decided before is only read. */
async function accept(run: PayoutRun): Promise<void> {
  const input = { ...driven(run), workflowAgeMs: Date.now() - workflowInfo().startTime.getTime() };
  updateFrom(run, await ledgerStep((ledger) => ledger.decidePayouts(input)));
}

/** Input for activities: the payout, with this workflow as its driver. */
function driven({ payoutId }: PayoutRun) {
  return { driver: payoutId, ids: [payoutId] };
}

/** Whether an event of the rail or a command has arrived. */
function hasInput(run: PayoutRun): boolean {
  return run.signal.isUp || run.commands.length > 0;
}

/**
 * Executes a command, or applies the events in the inbox. Commands go first: a cancellation must not
 * lose to an event that arrived later.
 */
async function handleCommandOrEvents(run: PayoutRun): Promise<void> {
  const command = run.commands.shift();
  if (command !== undefined) return execute(run, command);
  // Reset before the activity: a signal that arrives meanwhile triggers another pass.
  run.signal.isUp = false;
  updateFrom(run, await ledgerStep((ledger) => ledger.applyRailEvents(driven(run))));
}

/** Executes a command. If it fails, the answer says why, and the payout continues. */
async function execute(run: PayoutRun, command: Command): Promise<void> {
  const { payoutId } = run;
  const settleBy = run.snapshot?.settleBy;
  const { executeCommand } = command.actor === 'customer' ? cancellation : operation;
  try {
    const operated = await executeCommand({
      driver: payoutId,
      id: payoutId,
      actor: command.actor,
      // Generated here, so that an attempt repeated after a crash finds its own audit line.
      action: command.request ?? `op_${uuid4().replaceAll('-', '')}`,
    });
    updateFrom(run, operated.steps);
    if (run.snapshot?.settleBy && run.snapshot.settleBy !== settleBy) {
      const value = new Date(run.snapshot.settleBy);
      upsertSearchAttributes([{ key: searchAttributes.settleBy, value }]);
    }
    command.result = operated.result;
  } catch (error) {
    // Nothing was executed, or the row shows the effect: the operator may send the command again.
    log.warn('a command was not executed', { payoutId, error });
    command.result = unexecuted(messageOf(error));
  }
}

/**
 * Submits the payout to the rail: first in the workflow task that has decided it, because most rails answer
 * at once. During that task no command or callback arrives, so only this one call, of at most 5 s, is made
 * there. Whatever follows a call without an answer is a regular activity, which looks the order up first.
 * Its retries may be minutes apart, so signals are handled meanwhile: after a call that timed out, a callback
 * settles the payout without waiting for the lookup.
 */
async function submit(run: PayoutRun): Promise<void> {
  const input = driven(run);
  const again = () => railSubmit.submitPayouts(input);
  // Not canceled: the SDK fails a task that cancels a local activity as that one completes.
  const locally = () => CancellationScope.nonCancellable(() => localSubmit.submitPayouts(input));
  const first = () => locally().catch(again);
  // From here on the bank may have the order, even if its answer is lost.
  if (run.snapshot !== undefined) show({ ...run.snapshot, isSubmitted: true });
  const scope = new CancellationScope();
  let answer: readonly PayoutSnapshot[] | undefined;
  const submission = scope.run(run.snapshot?.isSubmitted ? again : first).then((snapshots) => {
    answer = snapshots;
  });
  for (;;) {
    await Promise.race([submission, condition(() => hasInput(run))]);
    if (answer !== undefined) return updateFrom(run, answer);
    await handleCommandOrEvents(run);
    if (run.isSuperseded || run.snapshot?.status !== 'processing' || shouldContinueAsNew()) {
      scope.cancel();
      await submission.catch(ignoreCancellation);
      return;
    }
  }
}

/** Waits for the callback's signal, then polls until the rail reports an outcome or its time is over. */
async function waitForTheRail(run: PayoutRun, settleInMs: number): Promise<void> {
  if (settleInMs <= 0) return park(run, 'settle_by_passed', attentionReasons.settle_by_passed);
  const patienceMs = Math.min(callbackPatienceMs, settleInMs);
  const summary = 'Waits for the bank to report by itself, before polling starts';
  if (await condition(() => hasInput(run), patienceMs, { summary })) return;
  const scope = new CancellationScope();
  const poll = scope
    .run(() => railPoll(settleInMs).pollRail({ payoutId: run.payoutId }))
    .then((snapshots) => updateFrom(run, snapshots));
  try {
    await Promise.race([poll, condition(() => hasInput(run))]);
    scope.cancel();
    await poll.catch(ignoreCancellation);
  } catch (error) {
    if (!isOutOfTime(error)) throw error;
    await park(run, 'settle_by_passed', attentionReasons.settle_by_passed);
  }
}

async function park(run: PayoutRun, reason: AttentionReason, detail: string): Promise<void> {
  const input = { driver: run.payoutId, id: run.payoutId, reason, detail };
  updateFrom(run, await ledgerStep((ledger) => ledger.parkPayout(input)));
}

/** Makes the payout searchable by its attention reason, and waits for a command or an event. */
async function waitForOperator(run: PayoutRun, attention: Attention): Promise<void> {
  if (run.shownAttention !== attention.reason) {
    run.shownAttention = attention.reason;
    upsertSearchAttributes([
      { key: searchAttributes.needsAttention, value: true },
      { key: searchAttributes.attentionReason, value: attention.reason },
    ]);
    const account = workflowInfo().typedSearchAttributes.get(searchAttributes.accountId);
    const { payoutId: payout } = run;
    log.warn('a payout needs an operator', { account, payout, reason: attention.reason });
  }
  await condition(() => hasInput(run));
}

/** Shows operators the payout's state. Setting the details of a workflow adds no history event. */
function show(snapshot: PayoutSnapshot): void {
  const { attention } = snapshot;
  const shown = { ...snapshot, attentionReason: attention?.reason ?? null };
  setCurrentDetails(detailsOf(shown, attention?.detail ?? ''));
}

/** Stores the snapshot that a step returned, and shows it. None means that another workflow drives it. */
function updateFrom(run: PayoutRun, snapshots: readonly PayoutSnapshot[]): void {
  const [snapshot] = snapshots;
  if (snapshot === undefined) {
    run.isSuperseded = true;
    return;
  }
  run.snapshot = snapshot;
  show(snapshot);
  if (snapshot.attention === null && run.shownAttention !== undefined) {
    run.shownAttention = undefined;
    upsertSearchAttributes([
      { key: searchAttributes.needsAttention, value: false },
      { key: searchAttributes.attentionReason, value: null },
    ]);
  }
}

function ignoreCancellation(error: unknown): void {
  if (!isCancellation(error)) throw error;
}

/**
 * Whether retries ended because time ran out. The cause does not tell: if the next attempt would
 * come too late, the server passes on the failure of the last one.
 */
function isOutOfTime(error: unknown): boolean {
  return error instanceof ActivityFailure && error.retryState === 'TIMEOUT';
}

function messageOf(error: unknown): string {
  const cause = error instanceof ActivityFailure && error.cause ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}
