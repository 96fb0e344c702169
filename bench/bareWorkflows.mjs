// What Temporal costs without a payout. Bundled for its sandbox, so it imports nothing but the SDK.
import { condition, defineUpdate, setHandler } from '@temporalio/workflow';

/** Started by an update, answers it, and ends. */
export async function answering() {
  let isAnswered = false;
  setHandler(defineUpdate('accept'), () => {
    isAnswered = true;
  });
  await condition(() => isAnswered);
}

export async function empty() {}
