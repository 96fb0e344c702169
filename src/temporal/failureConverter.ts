import { DefaultFailureConverter } from '@temporalio/common';

/** Puts the message and the stack of a failure into a payload, which is then encrypted as all are. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
