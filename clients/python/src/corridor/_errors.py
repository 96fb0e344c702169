"""What a call may raise."""

from __future__ import annotations

from typing import Generic, TypeVar

from .models import Batch, Payout, Problem, ProblemError

Last = TypeVar("Last", Payout, Batch)


class CorridorProblem(Exception):
    """A refusal by the API: problem details (RFC 9457), with the code to decide by."""

    def __init__(self, problem: Problem, idempotency_key: str | None, attempts: int) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.code: str = problem.code
        self.status: int = problem.status
        self.title: str = problem.title
        self.detail: str = problem.detail
        self.param: str | None = problem.param
        self.expected: str | None = problem.expected
        self.received: str | None = problem.received
        #: Every error of the request, the first one included.
        self.errors: list[ProblemError] = problem.errors
        #: Identifies the request in the logs of the service.
        self.request_id: str = problem.request_id
        #: The payout that records the refusal.
        self.payout: str | None = problem.payout
        self.batch: str | None = problem.batch
        self.idempotency_key: str | None = idempotency_key
        self.attempts: int = attempts


class CorridorConnectionError(Exception):
    """The API has not answered.

    The connection failed, an answer did not come in time, or something between answered in its
    place. A write may have been executed; the same call with the ``idempotency_key`` of this error
    finds out, and executes it if it was not.
    """

    def __init__(
        self, message: str, idempotency_key: str | None, attempts: int, status: int | None = None
    ) -> None:
        advice = (
            ""
            if idempotency_key is None
            else " The request may have been executed: repeat it with the idempotency key "
            f"{idempotency_key}."
        )
        super().__init__(f"{message} Attempts: {attempts}.{advice}")
        #: What was answered, where that was no answer of the API.
        self.status: int | None = status
        self.idempotency_key: str | None = idempotency_key
        self.attempts: int = attempts


class CorridorWaitTimeoutError(Exception, Generic[Last]):
    """A wait ended before its payout or batch was final.

    The time was over, or it cannot be read any more. The object goes on, and can be waited for
    again by the id in ``last``.
    """

    def __init__(self, last: Last, waited: float, cause: Exception | None = None) -> None:
        reason = "" if cause is None else f" It could not be read: {cause}"
        super().__init__(
            f"{last.id} was last known as {last.status} after {waited:g} seconds.{reason}"
        )
        #: The object as it was read last.
        self.last: Last = last


class WebhookVerificationError(Exception):
    """The webhook is not one of ours, was changed, or is too old: answer 400 and do nothing."""
