// What Temporal costs without a payout. Bundled for its sandbox, so it imports nothing but the SDK.
import {
  condition,
  defineSignal,
  defineUpdate,
  proxyActivities,
  proxyLocalActivities,
  setHandler,
} from '@temporalio/workflow';

/** Started by an update, answers it, and ends. */
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
 * What a payout asks of Temporal, and nothing of what it does: an update that waits for a local
 * step, an activity, a signal from outside, one local step more.
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
