// The floor's workflow. It is bundled for Temporal's sandbox, so it imports only the SDK.
import { proxyActivities } from '@temporalio/workflow';

const { accept, carry } = proxyActivities({ startToCloseTimeout: '2 minutes' });

/** Accepts the groups sequentially, because they share a balance, and pays accepted ones concurrently. */
export async function floor({ firstGroup, groups }) {
  const carried = [];
  for (let group = firstGroup; group < firstGroup + groups; group += 1) {
    await accept(group);
    carried.push(carry(group));
  }
  await Promise.all(carried);
}
