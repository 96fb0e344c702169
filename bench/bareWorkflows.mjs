// Workflows to measure Temporal without payouts. Bundled for its sandbox, so only the SDK is imported.
import {
  condition,
  defineSignal,
  defineUpdate,
  proxyLocalActivities,
  setHandler,
} from '@temporalio/workflow';

/** Is started by an update, answers it and ends. */
export async function answering() {
  let isAnswered = false;
  setHandler(defineUpdate('accept'), () => {
    isAnswered = true;
  });
  await condition(() => isAnswered);
}

export async function empty() {}

const { step } = proxyLocalActivities({ startToCloseTimeout: 2_000 });

/** Makes the same use of Temporal as a payout, with empty activities: two local ones, a signal and a third. */
export async function payoutShaped() {
  let isSignaled = false;
  setHandler(defineSignal('railUpdate'), () => {
    isSignaled = true;
  });
  await step();
  await step();
  await condition(() => isSignaled, 60_000);
  await step();
}
