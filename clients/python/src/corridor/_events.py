"""Events: what has happened, and the deliveries of each event."""

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

#: How long the service holds a request until there is an event; after ``stop`` it is waited for.
WAIT_SECONDS = 10

#: The wait, and as long as any other request may take.
ATTEMPT_SECONDS = WAIT_SECONDS + 30.0

#: A service that stops answers at once; to ask it again at once would keep both busy.
LEAST_PAUSE_SECONDS = 1.0

LONGEST_PAGE = 100

#: It outlasts an outage of about two minutes; after that somebody should know.
FEED_RETRIES = 18


class Events:
    """What has happened, and the deliveries of each event."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListEventsParams]
    ) -> Page[Event]:
        """Lists events, newest first."""
        return Page(self._transport, "/v1/events", params, Event, timeout)

    def retrieve(self, event_id: str, *, timeout: float | None = None) -> Event:
        """Reads an event."""
        return self._transport.send(
            Request("GET", path_of("events", event_id)), Event, timeout=timeout
        )

    def deliveries(
        self, event_id: str, *, timeout: float | None = None
    ) -> Page[DeliveryWithAttempts]:
        """Lists what became of an event at each endpoint, with the attempts."""
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
        """Delivers an event again, with the same id: to one endpoint, or to each that it was for."""
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
        """Every event in order and without gaps, as soon as it happens, for as long as it is read.

        Keep the ``sequence`` of the last event you have processed and pass it as ``after``. It ends
        when its reader leaves it, or after ``stop`` is set and a request that is under way, which
        waits for an event for ten seconds, has ended with its retries.
        """
        stopped = threading.Event() if stop is None else stop
        last = after
        # The caller is the limit: it goes on until it is left or stopped.
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
