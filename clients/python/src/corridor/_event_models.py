"""Events, whatever kind of object they are about."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Tag

from . import models
from ._base import Model

KNOWN_KINDS = frozenset({"payout", "batch"})


class UnknownObject(Model):
    """An object of a kind that this version of the client does not know, as it was sent.

    ``model_extra`` has its other fields.
    """

    #: Not every object says of which kind it is.
    object: str = ""
    #: Not every object has one.
    id: str | None = None


def _kind_of(data: object) -> str:
    kind = data.get("object") if isinstance(data, dict) else getattr(data, "object", None)
    return kind if isinstance(kind, str) and kind in KNOWN_KINDS else "unknown"


Data = Annotated[
    Annotated[models.Payout, Tag("payout")]
    | Annotated[models.Batch, Tag("batch")]
    | Annotated[UnknownObject, Tag("unknown")],
    Discriminator(_kind_of),
]


class Event(models.Event):
    """Something that happened. The API may add events about other kinds of objects at any time."""

    # It is wider than what the OpenAPI document of today says, as it is only read.
    data: Data  # type: ignore[assignment]


class EventList(Model):
    """A page of the feed."""

    data: list[Event]
    has_more: bool


class WebhookMessage(models.WebhookMessage):
    """An event as a webhook brings it: an endpoint for ``*`` gets those that are added later."""

    data: Data  # type: ignore[assignment]
    #: Only events have one: 0 for a challenge or a test.
    sequence: int = 0
