// The floor's workflow. It is bundled for Temporal's sandbox, so it imports only the SDK.
import { proxyActivities } from '@temporalio/workflow';

const { accept, pay } = proxyActivities({ startToCloseTimeout: '2 minutes' });

/** Accepts the groups sequentially, because they share a balance, and pays accepted ones concurrently. */
export async function floor({ firstGroup, groups }) {
  const paid = [];
  for (let group = firstGroup; group < firstGroup + groups; group += 1) {
    await accept(group);
    paid.push(pay(group));
  }
  await Promise.all(paid);
}
