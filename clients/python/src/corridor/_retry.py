"""When a request is sent again, and after how long.

A write keeps its idempotency key, so the service executes it once however often it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

#: Four more attempts outlast a restart of the service: 7.5 seconds of pauses on average.
DEFAULT_MAX_RETRIES = 4

#: The first pause: the service's own Retry-After for a request in progress is 1 second.
FIRST_PAUSE_SECONDS = 0.5

#: Longer pauses would only keep the caller waiting, as an outage is over at any moment.
LONGEST_PAUSE_SECONDS = 8.0

#: A caller that is told to wait for longer decides about that itself.
LONGEST_RETRY_AFTER_SECONDS = 60.0

#: Answers after which the errors page says that the same request may be sent with the same key.
REPEATABLE_CODES = frozenset(
    {
        "request_timeout",
        "request_in_progress",
        "rate_limited",
        "too_many_in_flight",
        "service_unavailable",
        "internal_error",
    }
)

#: Answers of what is between: the service itself always names a code.
REPEATABLE_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Attempt:
    """What came of one attempt; no status where no answer came."""

    status: int | None = None
    code: str | None = None
    retry_after: str | None = None


def pause_before_retry(
    attempt: Attempt, *, retries: int, random: float, now: datetime
) -> float | None:
    """The seconds before the next attempt, or None if there is to be none.

    ``retries`` is how many there were already; ``random`` is in [0, 1) and spreads callers that
    failed together.
    """
    asked = _retry_after_seconds(attempt.retry_after, now)
    if not is_repeatable(attempt, asked) or (asked or 0) > LONGEST_RETRY_AFTER_SECONDS:
        return None
    pause: float = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**retries) * (0.5 + random)
    return max(pause, (asked or 0) * (1 + random / 10))


def is_repeatable(attempt: Attempt, asked: float | None = None) -> bool:
    """Whether the same request may have another outcome later."""
    if attempt.status is None:
        return True
    if attempt.code is None:
        return attempt.status in REPEATABLE_STATUSES
    # A payout that was refused for want of a rate stays refused; the API then names no time.
    if attempt.code == "rate_unavailable":
        return asked is not None
    return attempt.code in REPEATABLE_CODES


def _retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Retry-After (RFC 9110, section 10.2.3) is a number of seconds or a date."""
    if header is None:
        return None
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    # A date without a zone is UTC there.
    aware = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    return max(0.0, (aware - now).total_seconds())
