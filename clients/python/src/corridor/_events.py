"""Events and their deliveries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from typing_extensions import Unpack

from ._bodies import json_body
from ._event_models import Event, EventList
from ._pages import Page
from ._payouts import new_key, path_of
from ._transport import Request, Transport
from .models import DeliveryWithAttempts, DeliveryWithAttemptsList
from .params import ListEventsParams, RedeliverEventParams

#: Duration of a long poll. After ``stop`` is set, the poll in flight still has to end.
WAIT_SECONDS = 10

#: Timeout of an attempt: the long poll plus the timeout of any other request.
ATTEMPT_SECONDS = WAIT_SECONDS + 30.0

#: Minimum pause between polls: a service that is shutting down answers at once, without waiting.
LEAST_PAUSE_SECONDS = 1.0

LONGEST_PAGE = 100

#: Number of retries, enough for an outage of about two minutes. A longer one should be noticed.
FEED_RETRIES = 18


class Events:
    """Events and their deliveries."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListEventsParams]
    ) -> Page[Event]:
        """Lists events, newest first. For those after a sequence, oldest first, use ``listen``."""
        if "after" in params:
            raise TypeError("after: use events.listen, which follows the feed from a sequence.")
        return Page(self._transport, "/v1/events", params, Event, timeout)

    def retrieve(self, event_id: str, *, timeout: float | None = None) -> Event:
        """Reads an event."""
        return self._transport.send(
            Request("GET", path_of("events", event_id)), Event, timeout=timeout
        )

    def deliveries(
        self, event_id: str, *, timeout: float | None = None
    ) -> Page[DeliveryWithAttempts]:
        """Lists an event's deliveries to each endpoint, with their attempts."""
        path = path_of("events", event_id, "/deliveries")
        return Page(self._transport, path, {}, DeliveryWithAttempts, timeout)

    def redeliver(
        self,
        event_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[RedeliverEventParams],
    ) -> DeliveryWithAttemptsList:
        """Delivers an event again with the same ID, to one endpoint or to all that it was for."""
        request = Request(
            "POST",
            path_of("events", event_id, "/redeliver"),
            content=json_body(params),
            idempotency_key=new_key(idempotency_key),
        )
        return self._transport.send(request, DeliveryWithAttemptsList, timeout=timeout)

    def listen(
        self, *, after: int = 0, stop: threading.Event | None = None
    ) -> Iterator[Event]:
        """Yields every event in order and without gaps, as soon as it happens.

        Store the ``sequence`` of the last event you have processed and pass it as ``after``. The
        iteration ends when the caller leaves it, or after ``stop`` is set. In that case it first
        waits for the request in flight, a long poll of ten seconds, and its retries.
        """
        stopped = threading.Event() if stop is None else stop
        last = after
        # Runs until the caller stops iterating or sets ``stop``.
        while not stopped.is_set():
            started = time.monotonic()
            request = Request(
                "GET",
                "/v1/events",
                query={"after": last, "limit": LONGEST_PAGE},
                prefer=f"wait={WAIT_SECONDS}",
            )
            page = self._transport.send(
                request, EventList, timeout=ATTEMPT_SECONDS, max_retries=FEED_RETRIES
            )
            for event in page.data:
                if stopped.is_set():
                    return
                yield event
                last = event.sequence
            if not page.data:
                stopped.wait(max(0.0, started + LEAST_PAUSE_SECONDS - time.monotonic()))
