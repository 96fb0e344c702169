import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';

/**
 * The only file that speaks Temporal's failures. What is expected to be tried again is
 * BENIGN, which keeps it out of error logs and metrics; everything else an activity throws
 * is a bug or an outage and stays what it is.
 */
export function notYet(message: string): ApplicationFailure {
  return ApplicationFailure.create({
    message,
    type: 'NotYet',
    category: ApplicationFailureCategory.BENIGN,
  });
}
