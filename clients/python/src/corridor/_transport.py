"""Sends requests and retries them while that can help."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeVar

import httpx
from pydantic import ValidationError

from ._base import Model
from ._errors import CorridorConnectionError, CorridorProblem
from ._query import query_of
from ._retry import DEFAULT_MAX_RETRIES, Attempt, pause_before_retry
from .models import Problem

#: Sent with every request. A test compares it with pyproject.toml.
CLIENT_VERSION = "0.1.0"

#: The API version that the models describe and that the client requests.
DESCRIBED_VERSION = "2026-11-15"

#: The service responds within 13 seconds, unless the request asks it to wait.
DEFAULT_TIMEOUT_SECONDS = 30.0

Answer = TypeVar("Answer", bound=Model)


@dataclass(frozen=True)
class Request:
    """A call of the API. The body is complete, so that every attempt sends the same bytes."""

    method: str
    path: str
    query: Mapping[str, object] = field(default_factory=dict)
    content: bytes | None = None
    content_type: str = "application/json"
    #: Set for writes only.
    idempotency_key: str | None = None
    prefer: str | None = None


@dataclass(frozen=True)
class _Failure:
    attempt: Attempt
    problem: Problem | None = None
    cause: Exception | None = None


class Transport:
    """The connections of one client. It is thread-safe."""

    def __init__(
        self,
        *,
        api_key: str,
        api_url: str,
        api_version: str,
        max_retries: int,
        timeout: float,
        http_client: httpx.Client | None,
    ) -> None:
        self._max_retries = max_retries
        self._timeout = timeout
        self._owns_client = http_client is None
        self._client = http_client if http_client is not None else httpx.Client()
        self._api_url = api_url.rstrip("/")
        self._headers = {
            "Authorization": f"Bearer {api_key}",
            "Accept": "application/json, application/problem+json",
            "Corridor-Version": api_version,
            "User-Agent": f"corridor-client-python/{CLIENT_VERSION}",
        }

    def close(self) -> None:
        """Closes the connections, unless the caller has passed its own HTTP client."""
        if self._owns_client:
            self._client.close()

    def send(
        self,
        request: Request,
        model: type[Answer],
        *,
        timeout: float | None = None,
        max_retries: int | None = None,
    ) -> Answer:
        """Sends a request, retries it while that can help and returns the response."""
        most = self._max_retries if max_retries is None else max_retries
        seconds = self._timeout if timeout is None else timeout
        # A request that cannot be sent at all, such as with a line break in the key, fails here.
        prepared = self._client.build_request(
            request.method,
            self._api_url + request.path + query_of(request.query),
            content=request.content,
            headers=self._headers_of(request),
            timeout=seconds,
        )
        retries = 0
        is_doubtful = False
        # Bounded by the caller's max_retries or DEFAULT_MAX_RETRIES.
        while True:
            outcome = self._attempt(prepared, model)
            if not isinstance(outcome, _Failure):
                return outcome
            pause = pause_before_retry(
                outcome.attempt,
                retries=retries,
                random=random.random(),
                now=datetime.now(timezone.utc),
            )
            is_doubtful = is_doubtful or _may_be_executed(outcome)
            if retries >= most or pause is None:
                raise _error_of(outcome, request, retries + 1, is_doubtful)
            time.sleep(pause)
            retries += 1

    def _attempt(
        self, prepared: httpx.Request, model: type[Answer]
    ) -> Answer | _Failure:
        try:
            # The body of a write must not be sent to the target of a redirect.
            response = self._client.send(prepared, follow_redirects=False)
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
            raise
        except (httpx.TransportError, httpx.DecodingError) as cause:
            # No response or an incomplete one: whether the request arrived is unknown.
            return _Failure(Attempt(), cause=cause)
        if response.is_success:
            return _decoded(response.content, model)
        problem = _problem_of(response.content)
        attempt = Attempt(
            status=response.status_code,
            code=None if problem is None else problem.code,
            retry_after=response.headers.get("Retry-After"),
        )
        return _Failure(attempt, problem=problem)

    def _headers_of(self, request: Request) -> dict[str, str]:
        optional = {
            "Content-Type": request.content_type if request.content is not None else None,
            "Idempotency-Key": request.idempotency_key,
            "Prefer": request.prefer,
        }
        sent = {name: value for name, value in optional.items() if value is not None}
        return {**self._headers, **sent}


def _decoded(content: bytes, model: type[Answer]) -> Answer | _Failure:
    """Returns the response, or a failure if it is not the API's but, for example, a proxy's."""
    try:
        # Numbers with a decimal point are rates or fees of older API versions: never floats.
        return model.model_validate(json.loads(content, parse_float=str))
    except ValueError as cause:
        # Not UTF-8, not JSON, or not the API's JSON.
        return _Failure(Attempt(), cause=cause)


def _problem_of(content: bytes) -> Problem | None:
    """Returns problem details, or None for a response of a proxy."""
    try:
        return Problem.model_validate_json(content)
    except ValidationError:
        return None


def _may_be_executed(failure: _Failure) -> bool:
    """Returns whether the request may have been executed although no answer says so."""
    status, code = failure.attempt.status, failure.attempt.code
    if status is None or code is None or code == "request_in_progress":
        return True
    return status >= 500 and code != "rate_unavailable"


def _is_of_first(problem: CorridorProblem) -> bool:
    """Returns whether a refusal says what became of the first request with the key.

    The API makes most others before it looks up the key, and ``idempotency_key_reused`` says that
    the first request was executed.
    """
    if problem.code == "idempotency_key_reused":
        return False
    if problem.status >= 500:
        return problem.code == "rate_unavailable"
    names = problem.payout is not None or problem.batch is not None
    return names or problem.status == 422 or problem.code == "not_found"


def _error_of(failure: _Failure, request: Request, attempts: int, is_doubtful: bool) -> Exception:
    """``is_doubtful``: whether an attempt may have been executed."""
    key = request.idempotency_key
    if failure.problem is not None:
        problem = CorridorProblem(failure.problem, key, attempts)
        if not is_doubtful or key is None or _is_of_first(problem):
            return problem
        said = f"The request may have been executed: the last answer was {problem.code}."
        unknown = CorridorConnectionError(said, key, attempts)
        unknown.__cause__ = problem
        return unknown
    status = failure.attempt.status
    if status is not None:
        said = f"Something other than the API answered {status}."
        return CorridorConnectionError(said, key, attempts, status)
    # Only the type of a decoding error, whose message may contain the whole body. The cause has it.
    is_foreign = isinstance(failure.cause, ValueError)
    reason = type(failure.cause).__name__ if is_foreign else repr(failure.cause)
    said = f"The API did not answer: {reason}."
    lost = CorridorConnectionError(said, key, attempts)
    lost.__cause__ = failure.cause
    return lost


__all__ = [
    "CLIENT_VERSION",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_TIMEOUT_SECONDS",
    "DESCRIBED_VERSION",
    "Request",
    "Transport",
]
