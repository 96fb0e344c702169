"""Waits until something is final."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ._errors import CorridorConnectionError, CorridorProblem, CorridorWaitTimeoutError
from ._retry import Attempt, is_repeatable
from .models import Batch, Payout

#: Most payouts settle within seconds or within days.
DEFAULT_WAIT_SECONDS = 60.0

#: Soon after the first look, since most are final within a second.
FIRST_PAUSE_SECONDS = 0.25

#: A read every five seconds is far below the rate limit of an account, also for many waits.
LONGEST_PAUSE_SECONDS = 5.0

#: The wait itself reads again, and only until its deadline.
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
    """Reads an object until it is final; ``started`` is of time.monotonic().

    A read that fails says nothing about the object, so the wait goes on; and whatever ends it, the
    caller gets the object, which may have been sent just before.
    """
    last, pause = first, FIRST_PAUSE_SECONDS
    failure: Exception | None = None
    # The deadline is the limit of the loop.
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
            # Such as for a key that was revoked: to read on would only keep the caller waiting.
            if not is_repeatable(Attempt(status=problem.status, code=problem.code)):
                waited = time.monotonic() - started
                raise CorridorWaitTimeoutError(last, waited, problem) from problem
            failure = problem
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
    return last
