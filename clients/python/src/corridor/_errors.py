"""The exceptions that calls may raise."""

from __future__ import annotations

from typing import Generic, TypeVar

from .models import Batch, Payout, Problem, ProblemError

Last = TypeVar("Last", Payout, Batch)


class CorridorProblem(Exception):
    """A refusal by the API: problem details (RFC 9457), with a ``code`` for programs."""

    def __init__(self, problem: Problem, idempotency_key: str | None, attempts: int) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.code: str = problem.code
        self.status: int = problem.status
        self.title: str = problem.title
        self.detail: str = problem.detail
        self.param: str | None = problem.param
        self.expected: str | None = problem.expected
        self.received: str | None = problem.received
        #: All errors of the request, including the first one.
        self.errors: list[ProblemError] = problem.errors
        #: Identifies the request in the service's logs.
        self.request_id: str = problem.request_id
        #: The payout that records the refusal.
        self.payout: str | None = problem.payout
        self.batch: str | None = problem.batch
        self.idempotency_key: str | None = idempotency_key
        self.attempts: int = attempts


class CorridorConnectionError(Exception):
    """It is unknown whether the request was executed.

    The connection failed, the response timed out, an intermediary such as a proxy responded instead
    of the API, or a repeat after one of these was refused without saying what became of the first
    attempt (``__cause__`` is then the refusal). Repeat a write with this error's
    ``idempotency_key``: it returns the result, or executes the write if that has not happened.
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
        #: The HTTP status of a response that did not come from the API.
        self.status: int | None = status
        self.idempotency_key: str | None = idempotency_key
        self.attempts: int = attempts


class CorridorWaitTimeoutError(Exception, Generic[Last]):
    """A wait ended before its payout or batch was final.

    It timed out, or the object can no longer be read. The payout or batch continues. Use the ID in
    ``last`` to wait again.
    """

    def __init__(self, last: Last, waited: float, cause: Exception | None = None) -> None:
        reason = "" if cause is None else f" It could not be read: {cause}"
        super().__init__(
            f"{last.id} was last known as {last.status} after {waited:g} seconds.{reason}"
        )
        #: The object as last read.
        self.last: Last = last


class WebhookVerificationError(Exception):
    """The webhook is not from Corridor, was modified or is too old: respond with 400 only."""
