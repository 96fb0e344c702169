"""The retry policy.

A write keeps its idempotency key over its retries, so that the service executes it only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

#: Four retries, with 7.5 seconds of pauses on average, outlast a restart of the service.
DEFAULT_MAX_RETRIES = 4

#: The first pause. For comparison, the service's Retry-After for a request in progress is 1 second.
FIRST_PAUSE_SECONDS = 0.5

#: Maximum pause: an outage can end at any moment, so a longer pause would only delay the caller.
LONGEST_PAUSE_SECONDS = 8.0

#: Maximum Retry-After that is obeyed. Beyond it, the caller should decide whether to wait.
LONGEST_RETRY_AFTER_SECONDS = 60.0

#: Codes for which the documentation of errors allows repeating the request with the same key.
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

#: Statuses from intermediaries such as proxies: the service itself always returns a code.
REPEATABLE_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Attempt:
    """The outcome of one attempt. Without a response there is no status."""

    status: int | None = None
    code: str | None = None
    retry_after: str | None = None


def pause_before_retry(
    attempt: Attempt, *, retries: int, random: float, now: datetime
) -> float | None:
    """Returns the seconds before the next attempt, or None if the request should not be retried.

    ``retries`` is the number of retries so far. ``random`` is a number in [0, 1), the jitter for
    callers that failed at the same time.
    """
    asked = _retry_after_seconds(attempt.retry_after, now)
    if not is_repeatable(attempt, asked) or (asked or 0) > LONGEST_RETRY_AFTER_SECONDS:
        return None
    pause: float = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**retries) * (0.5 + random)
    return max(pause, (asked or 0) * (1 + random / 10))


def is_repeatable(attempt: Attempt, asked: float | None = None) -> bool:
    """Returns whether the same request may have a different outcome later."""
    if attempt.status is None:
        return True
    if attempt.code is None:
        return attempt.status in REPEATABLE_STATUSES
    # A payout refused for lack of a rate stays refused. In that case the API sends no Retry-After.
    if attempt.code == "rate_unavailable":
        return asked is not None
    return attempt.code in REPEATABLE_CODES


def _retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Parses Retry-After (RFC 9110, section 10.2.3): a number of seconds or a date."""
    if header is None:
        return None
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    # In Retry-After, a date without a time zone is in UTC.
    aware = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    return max(0.0, (aware - now).total_seconds())
