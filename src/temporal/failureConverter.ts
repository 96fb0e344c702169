import { DefaultFailureConverter } from '@temporalio/common';

/** Puts a failure's message and stack into a payload, which is then encrypted like any other. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
