"""Payouts: each sends money to one beneficiary."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from typing import Literal, overload
from urllib.parse import quote as percent_encoded

from typing_extensions import Unpack

from ._bodies import json_body
from ._pages import Page
from ._transport import DEFAULT_TIMEOUT_SECONDS, Request, Transport
from ._waiting import DEFAULT_WAIT_SECONDS, READ_RETRIES, until_final
from .models import Calculation, ExpandedPayout, Payout
from .params import CreatePayoutParams, ListPayoutsParams

Expandable = Literal["beneficiary", "quote", "batch"]

#: Statuses of unfinished payouts. Every other status is final, including those added later.
OPEN_STATUSES = frozenset({"pending", "processing", "sent"})

#: Maximum time for which the API delays a response.
LONGEST_PREFER_SECONDS = 30


def new_key(chosen: str | None) -> str:
    """Returns the caller's idempotency key, or a new unique one."""
    return str(uuid.uuid4()) if chosen is None else chosen


def path_of(collection: str, object_id: str, part: str = "") -> str:
    """Returns the path of an object, with its ID percent-encoded."""
    return f"/v1/{collection}/{percent_encoded(object_id, safe='')}{part}"


class Payouts:
    """Payouts: each sends money to one beneficiary."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[CreatePayoutParams],
    ) -> Payout:
        """Sends a payout. A refusal is a CorridorProblem; ``payout`` names its record, if any."""
        return self._create(params, new_key(idempotency_key), timeout=timeout)

    def create_and_wait(
        self,
        *,
        idempotency_key: str | None = None,
        wait_timeout: float = DEFAULT_WAIT_SECONDS,
        **params: Unpack[CreatePayoutParams],
    ) -> Payout:
        """Sends a payout and waits until it is settled, failed, canceled or returned.

        Sending may take as long as with ``create``, even if the wait is short.
        Raises CorridorWaitTimeoutError with the payout if it is not known to be final within
        ``wait_timeout`` seconds.
        """
        started = time.monotonic()
        seconds = max(0, min(LONGEST_PREFER_SECONDS, math.ceil(wait_timeout)))
        sent = self._create(
            params,
            new_key(idempotency_key),
            # Timeout of an attempt: the wait plus the timeout of any other request.
            timeout=seconds + DEFAULT_TIMEOUT_SECONDS,
            prefer=f"wait={seconds}",
        )
        return self._until_final(sent, started, wait_timeout)

    def wait(self, payout_id: str, *, wait_timeout: float = DEFAULT_WAIT_SECONDS) -> Payout:
        """Waits until a payout is final."""
        started = time.monotonic()
        return self._until_final(self.retrieve(payout_id), started, wait_timeout)

    @overload
    def retrieve(
        self, payout_id: str, *, expand: None = None, timeout: float | None = None
    ) -> Payout: ...
    @overload
    def retrieve(
        self, payout_id: str, *, expand: Sequence[Expandable], timeout: float | None = None
    ) -> ExpandedPayout: ...
    def retrieve(
        self,
        payout_id: str,
        *,
        expand: Sequence[Expandable] | None = None,
        timeout: float | None = None,
    ) -> Payout | ExpandedPayout:
        """Reads a payout. ``expand`` replaces IDs with the objects."""
        request = Request("GET", path_of("payouts", payout_id), query={"expand": expand})
        if expand is None:
            return self._transport.send(request, Payout, timeout=timeout)
        return self._transport.send(request, ExpandedPayout, timeout=timeout)

    @overload
    def list(
        self,
        *,
        expand: None = None,
        timeout: float | None = None,
        **params: Unpack[ListPayoutsParams],
    ) -> Page[Payout]: ...
    @overload
    def list(
        self,
        *,
        expand: Sequence[Expandable],
        timeout: float | None = None,
        **params: Unpack[ListPayoutsParams],
    ) -> Page[ExpandedPayout]: ...
    def list(
        self,
        *,
        expand: Sequence[Expandable] | None = None,
        timeout: float | None = None,
        **params: Unpack[ListPayoutsParams],
    ) -> Page[Payout] | Page[ExpandedPayout]:
        """Lists payouts, newest first. ``data`` is one page; iterating goes through all pages."""
        query = {**params, "expand": expand}
        if expand is None:
            return Page(self._transport, "/v1/payouts", query, Payout, timeout)
        return Page(self._transport, "/v1/payouts", query, ExpandedPayout, timeout)

    def calculation(self, payout_id: str, *, timeout: float | None = None) -> Calculation:
        """Reads how a payout's price was computed. Before it is accepted, there are no steps."""
        request = Request("GET", path_of("payouts", payout_id, "/calculation"))
        return self._transport.send(request, Calculation, timeout=timeout)

    def cancel(
        self,
        payout_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Payout:
        """Cancels a payout that the bank has not accepted."""
        path = path_of("payouts", payout_id, "/cancel")
        request = Request("POST", path, idempotency_key=new_key(idempotency_key))
        return self._transport.send(request, Payout, timeout=timeout)

    def _create(
        self,
        params: CreatePayoutParams,
        key: str,
        *,
        timeout: float | None,
        prefer: str | None = None,
    ) -> Payout:
        request = Request(
            "POST", "/v1/payouts", content=json_body(params), idempotency_key=key, prefer=prefer
        )
        return self._transport.send(request, Payout, timeout=timeout)

    def _until_final(self, first: Payout, started: float, wait_timeout: float) -> Payout:
        request = Request("GET", path_of("payouts", first.id))
        return until_final(
            first,
            is_final=lambda payout: payout.status not in OPEN_STATUSES,
            read=lambda: self._transport.send(request, Payout, max_retries=READ_RETRIES),
            started=started,
            wait_timeout=wait_timeout,
        )
