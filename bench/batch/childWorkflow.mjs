// The parent of the second way: one child workflow per payout, `atOnce` at a time. It is bundled for
// Temporal's sandbox, so it imports only the SDK.
import { executeChild, ParentClosePolicy } from '@temporalio/workflow';

export async function onePayoutAChild({ ids, atOnce }) {
  const left = [...ids];
  const lane = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      // The product's workflow for single payouts, run by the product's worker.
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
