// Workflows to measure Temporal without payouts. Bundled for its sandbox, so only the SDK is imported.
import {
  condition,
  defineSignal,
  defineUpdate,
  proxyActivities,
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

const local = proxyLocalActivities({ startToCloseTimeout: 2_000 });
const { submit } = proxyActivities({ startToCloseTimeout: 10_000 });

/**
 * Makes the same use of Temporal as a payout, with empty activities: an update that waits for a local
 * activity, an activity, a signal and another local activity.
 */
export async function payoutShaped() {
  let isDecided = false;
  let isSignaled = false;
  setHandler(defineUpdate('accept'), () => condition(() => isDecided));
  setHandler(defineSignal('railUpdate'), () => {
    isSignaled = true;
  });
  await local.step();
  isDecided = true;
  await submit();
  await condition(() => isSignaled);
  await local.step();
}
