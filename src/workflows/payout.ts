import {
  ActivityFailure,
  allHandlersFinished,
  CancellationScope,
  ContinueAsNew,
  condition,
  continueAsNew,
  isCancellation,
  log,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  uuid4,
  workflowInfo,
} from '@temporalio/workflow';
import type { PayoutStep } from '../activities/step.js';
import {
  type AttentionReason,
  attentionReasons,
  isFinal,
  type PayoutStatus,
} from '../domain/payout.js';
import { type Command, takeCommands } from './commands.js';
import { acceptUpdate, type PayoutInput, railUpdateSignal, searchAttributes } from './messages.js';
import { deliverEvents, ledgerStep, operation, railPoll, railSubmit } from './proxies.js';

/** A rail that calls back does so within seconds; after a minute of silence we ask. */
const callbackPatienceMs = 60_000;

/**
 * What the workflow remembers. It is little, because the row is the truth: a run that is
 * closed, terminated or reset is started again from the row.
 */
type Hand = {
  readonly payoutId: string;
  step: PayoutStep | undefined;
  /** Another driver has taken the payout over; this hand must let go. */
  lost: boolean;
  nudged: boolean;
  /** What people ask for, in the order in which they asked. */
  readonly commands: Command[];
  /** The reason that operators find the payout by. */
  shownAttention: string | undefined;
  /** Deliveries under way; the last run of them is awaited at the end. */
  delivering: number;
};

/**
 * One payout, from the decision to its last delivered event. It reads the row first and goes
 * on from there, so it may be started at any moment and any number of times. It never fails
 * while it holds money: what it has no answer to, it leaves to a person.
 */
export async function payout({ payoutId }: PayoutInput): Promise<PayoutStatus | 'lost'> {
  const hand: Hand = {
    payoutId,
    step: undefined,
    lost: false,
    nudged: false,
    commands: [],
    // A run that follows another one has its search attributes.
    shownAttention: workflowInfo().typedSearchAttributes.get(searchAttributes.attentionReason),
    delivering: 0,
  };
  setHandler(
    railUpdateSignal,
    () => {
      hand.nudged = true;
    },
    { description: 'Look at the row and the inbox again; carries no data.' },
  );
  setHandler(acceptUpdate, () => decision(hand), {
    description: 'Waits until the payout is accepted or refused, and answers its status.',
  });
  takeCommands(hand.commands);
  await CancellationScope.nonCancellable(async () => {
    await drive(hand);
    // Who asked when nothing was left to do still gets an answer.
    while (!allHandlersFinished()) {
      for (const command of hand.commands.splice(0)) command.result = tooLate;
      await condition(() => allHandlersFinished() || hand.commands.length > 0);
    }
  });
  return hand.lost || hand.step === undefined ? 'lost' : hand.step.status;
}

const tooLate = {
  outcome: 'refused',
  detail: 'The payout has just come to its end. Look at it again.',
  action: null,
} as const;

async function decision(hand: Hand): Promise<PayoutStatus> {
  await CancellationScope.nonCancellable(() =>
    condition(() => hand.step !== undefined || hand.lost),
  );
  return hand.step?.status ?? 'pending';
}

async function drive(hand: Hand): Promise<void> {
  let isOpen = true;
  while (isOpen && !hand.lost) {
    try {
      isOpen = await advance(hand);
    } catch (error) {
      if (error instanceof ContinueAsNew) throw error;
      log.error('a step of the payout failed', { payoutId: hand.payoutId, error });
      await park(hand, 'unexpected_failure', messageOf(error));
    }
  }
}

/** One stretch of the way; false when there is nothing left to do. */
async function advance(hand: Hand): Promise<boolean> {
  const { step } = hand;
  if (step === undefined) {
    await accept(hand);
  } else if (isDue(hand) || step.hasUnprocessedEvents) {
    await serve(hand);
  } else if (isTooLong() && !isOver(step)) {
    await goOnInNewRun(hand);
  } else if (step.attention !== null) {
    await waitForAPerson(hand, step.attention);
  } else if (step.status === 'pending') {
    await accept(hand);
  } else if (step.status === 'processing') {
    await submit(hand);
  } else if (step.status === 'sent') {
    await waitForTheRail(hand, step.settleInMs);
  } else {
    await condition(() => hand.delivering === 0);
    return isDue(hand);
  }
  return true;
}

/**
 * A payout may wait for months, for its rail, a person or its batch; looks that change nothing
 * would fill the history meanwhile.
 */
function isTooLong(): boolean {
  return workflowInfo().continueAsNewSuggested;
}

function isOver({ status, attention }: PayoutStep): boolean {
  return isFinal(status) && attention === null;
}

/** The new run reads the row; this one leaves no question and no delivery of its own behind. */
async function goOnInNewRun(hand: Hand): Promise<void> {
  await condition(() => isDue(hand) || (hand.delivering === 0 && allHandlersFinished()));
  if (!isDue(hand)) await continueAsNew<typeof payout>({ payoutId: hand.payoutId });
}

/** Decides a pending payout; one that was decided before is only looked at. */
async function accept(hand: Hand): Promise<void> {
  const { payoutId } = hand;
  const workflowAgeMs = Date.now() - workflowInfo().startTime.getTime();
  take(
    hand,
    await ledgerStep((ledger) =>
      ledger.acceptPayouts({ driver: payoutId, ids: [payoutId], workflowAgeMs }),
    ),
  );
}

/** Whether somebody has spoken: the rail, through the inbox, or a person. */
function isDue(hand: Hand): boolean {
  return hand.nudged || hand.commands.length > 0;
}

/** People first: who cancels must not lose to news that came later. */
async function serve(hand: Hand): Promise<void> {
  const command = hand.commands.shift();
  if (command === undefined) return settle(hand);
  const { payoutId } = hand;
  const settleBy = hand.step?.settleBy;
  try {
    const operated = await operation.executeCommand({
      driver: payoutId,
      id: payoutId,
      actor: command.actor,
      // Made here, so that an attempt that is repeated after a crash finds its own line.
      action: command.request ?? `op_${uuid4().replaceAll('-', '')}`,
    });
    take(hand, operated.steps);
    if (hand.step?.settleBy && hand.step.settleBy !== settleBy) {
      const value = new Date(hand.step.settleBy);
      upsertSearchAttributes([{ key: searchAttributes.settleBy, value }]);
    }
    command.result = operated.result;
  } catch (error) {
    // Nothing was carried out, or it will be found in the row: whoever asked may ask again.
    log.warn('a command was not carried out', { payoutId, error });
    command.result = { outcome: 'refused', detail: messageOf(error), action: null };
  }
}

/** Applies whatever the inbox holds. A nudge that comes meanwhile leads to another look. */
async function settle(hand: Hand): Promise<void> {
  hand.nudged = false;
  take(
    hand,
    await ledgerStep((ledger) =>
      ledger.settlePayouts({ driver: hand.payoutId, ids: [hand.payoutId] }),
    ),
  );
}

/**
 * Hands the payout to the rail. Its retries are patient, so a nudge is looked at meanwhile:
 * the callback of a call that timed out settles the payout without waiting for the look-up.
 */
async function submit(hand: Hand): Promise<void> {
  const scope = new CancellationScope();
  let answer: readonly PayoutStep[] | undefined;
  const submission = scope
    .run(() => railSubmit.submitPayouts({ driver: hand.payoutId, ids: [hand.payoutId] }))
    .then((steps) => {
      answer = steps;
    });
  while (answer === undefined) {
    await Promise.race([submission, condition(() => isDue(hand))]);
    if (answer !== undefined) break;
    await serve(hand);
    if (hand.lost || hand.step?.status !== 'processing' || isTooLong()) {
      scope.cancel();
      await submission.catch(ignoreCancellation);
      return;
    }
  }
  take(hand, answer);
}

/** Waits for the callback's nudge, then polls until the rail has told or its time is over. */
async function waitForTheRail(hand: Hand, settleInMs: number): Promise<void> {
  if (settleInMs <= 0) return park(hand, 'settle_by_passed', attentionReasons.settle_by_passed);
  if (await condition(() => isDue(hand), Math.min(callbackPatienceMs, settleInMs))) return;
  const scope = new CancellationScope();
  const poll = scope
    .run(() => railPoll(settleInMs).pollRail({ payoutId: hand.payoutId }))
    .then((steps) => take(hand, steps));
  try {
    await Promise.race([poll, condition(() => isDue(hand))]);
    scope.cancel();
    await poll.catch(ignoreCancellation);
  } catch (error) {
    if (!isOutOfTime(error)) throw error;
    await park(hand, 'settle_by_passed', attentionReasons.settle_by_passed);
  }
}

async function park(hand: Hand, reason: AttentionReason, detail: string): Promise<void> {
  take(
    hand,
    await ledgerStep((ledger) =>
      ledger.parkPayout({ driver: hand.payoutId, id: hand.payoutId, reason, detail }),
    ),
  );
}

/** Shows an operator what happened, and waits for something new. */
async function waitForAPerson(
  hand: Hand,
  attention: NonNullable<PayoutStep['attention']>,
): Promise<void> {
  if (hand.shownAttention !== attention.reason) {
    hand.shownAttention = attention.reason;
    upsertSearchAttributes([
      { key: searchAttributes.needsAttention, value: true },
      { key: searchAttributes.attentionReason, value: attention.reason },
    ]);
  }
  setCurrentDetails(
    `**Needs a person: ${attention.reason}**\n\n${attentionReasons[attention.reason]}\n\n${attention.detail}`,
  );
  await condition(() => isDue(hand));
}

/** Takes note of where the row stands, and starts what must be told to somebody. */
function take(hand: Hand, steps: readonly PayoutStep[]): void {
  const [step] = steps;
  if (step === undefined) {
    hand.lost = true;
    return;
  }
  hand.step = step;
  if (step.attention === null && hand.shownAttention !== undefined) {
    hand.shownAttention = undefined;
    upsertSearchAttributes([
      { key: searchAttributes.needsAttention, value: false },
      { key: searchAttributes.attentionReason, value: null },
    ]);
    setCurrentDetails('');
  }
  if (step.hasSubscribers) void deliver(hand);
}

/** Beside everything else: neither the rail nor a person waits for slow receivers. */
async function deliver(hand: Hand): Promise<void> {
  hand.delivering += 1;
  await deliverEvents(hand.payoutId);
  hand.delivering -= 1;
}

function ignoreCancellation(error: unknown): void {
  if (!isCancellation(error)) throw error;
}

/**
 * Whether retries ended for want of time. The cause does not tell: where the next attempt
 * would come too late, the server hands on the failure of the last one.
 */
function isOutOfTime(error: unknown): boolean {
  return error instanceof ActivityFailure && error.retryState === 'TIMEOUT';
}

function messageOf(error: unknown): string {
  const cause = error instanceof ActivityFailure && error.cause ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}
