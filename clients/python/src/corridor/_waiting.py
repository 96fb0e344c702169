"""Waits until a payout or batch is final."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ._errors import CorridorConnectionError, CorridorProblem, CorridorWaitTimeoutError
from ._retry import Attempt, is_repeatable
from .models import Batch, Payout

#: A minute, because most payouts settle within seconds or within days.
DEFAULT_WAIT_SECONDS = 60.0

#: Pause after the first read: short, because most payouts are final within a second.
FIRST_PAUSE_SECONDS = 0.25

#: Maximum pause: a read every five seconds is far below the account's rate limit.
LONGEST_PAUSE_SECONDS = 5.0

#: Reads are not retried, because the wait itself repeats them until its deadline.
READ_RETRIES = 0

Read = TypeVar("Read", Payout, Batch)


def until_final(
    first: Read,
    *,
    is_final: Callable[[Read], bool],
    read: Callable[[], Read],
    started: float,
    wait_timeout: float,
) -> Read:
    """Reads an object until it is final. ``started`` is a value of time.monotonic().

    Continues after a failed read, which says nothing about the object. The error that ends a wait
    contains the object, because the caller may just have created it.
    """
    last, pause = first, FIRST_PAUSE_SECONDS
    failure: Exception | None = None
    # Bounded by the deadline.
    while not is_final(last):
        left = started + wait_timeout - time.monotonic()
        if left <= 0:
            raise CorridorWaitTimeoutError(last, wait_timeout, failure) from failure
        time.sleep(min(pause, left))
        try:
            last, failure = read(), None
        except CorridorConnectionError as error:
            failure = error
        except CorridorProblem as problem:
            # Reading again may be pointless, for example after the API key was revoked.
            if not is_repeatable(Attempt(status=problem.status, code=problem.code)):
                waited = time.monotonic() - started
                raise CorridorWaitTimeoutError(last, waited, problem) from problem
            failure = problem
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
    return last
