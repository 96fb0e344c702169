// The parent of the second way: one child workflow a payout, so many at once. It is bundled for
// Temporal's sandbox, so it imports nothing but the SDK.
import { executeChild, ParentClosePolicy } from '@temporalio/workflow';

export async function onePayoutAChild({ ids, atOnce }) {
  const left = [...ids];
  const lane = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      // The product's own workflow for single payouts, run by the product's own worker.
      await executeChild('payout', {
        workflowId: id,
        args: [{ payoutId: id }],
        taskQueue: 'payouts',
        workflowTaskTimeout: 5_000,
        parentClosePolicy: ParentClosePolicy.ABANDON,
      });
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}
