"""Events: what has happened, and the deliveries of each event."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from typing_extensions import Unpack

from ._event_models import Event, EventList
from ._pages import Page
from ._payouts import path_of
from ._transport import Request, Transport
from .models import DeliveryWithAttempts
from .params import ListEventsParams

#: One read a second is a small part of an account's rate limit.
USUAL_POLL_SECONDS = 1.0

LONGEST_PAGE = 100

#: A feed outlasts an outage of about two minutes; after that somebody should know.
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

    def feed(
        self,
        *,
        after: int = 0,
        poll_interval: float = USUAL_POLL_SECONDS,
        stop: threading.Event | None = None,
    ) -> Iterator[Event]:
        """Every event in order and without gaps, for as long as it is read.

        Keep the ``sequence`` of the last event you have processed and pass it as ``after``. The
        feed ends when its reader leaves it, or after ``stop`` is set and a request that is under
        way, with its retries, has ended.
        """
        stopped = threading.Event() if stop is None else stop
        last = after
        # The caller is the limit: a feed goes on until it is left or stopped.
        while not stopped.is_set():
            request = Request("GET", "/v1/events", query={"after": last, "limit": LONGEST_PAGE})
            page = self._transport.send(request, EventList, max_retries=FEED_RETRIES)
            for event in page.data:
                if stopped.is_set():
                    return
                yield event
                last = event.sequence
            if not page.has_more:
                stopped.wait(poll_interval)
