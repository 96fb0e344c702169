"""Models of events, about known and unknown kinds of objects."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Tag

from . import models
from ._base import Model

KNOWN_KINDS = frozenset({"payout", "batch", "webhook_endpoint"})


class UnknownObject(Model):
    """An object of a kind that this version of the client does not know, as it was sent.

    ``model_extra`` contains its other fields.
    """

    #: The kind of the object; empty for objects without one.
    object: str = ""
    #: None for objects without an ID.
    id: str | None = None


def _kind_of(data: object) -> str:
    kind = data.get("object") if isinstance(data, dict) else getattr(data, "object", None)
    return kind if isinstance(kind, str) and kind in KNOWN_KINDS else "unknown"


Data = Annotated[
    Annotated[models.Payout, Tag("payout")]
    | Annotated[models.Batch, Tag("batch")]
    | Annotated[models.WebhookEndpoint, Tag("webhook_endpoint")]
    | Annotated[UnknownObject, Tag("unknown")],
    Discriminator(_kind_of),
]


class Event(models.Event):
    """Something that happened. The API may add events about other kinds of objects at any time."""

    # Wider than in the current OpenAPI document, which is safe because it is only read.
    data: Data  # type: ignore[assignment]


class EventList(Model):
    """A page of the feed."""

    data: list[Event]
    has_more: bool


class WebhookMessage(models.WebhookMessage):
    """An event in a webhook. Endpoints for ``*`` also receive event types added later."""

    data: Data  # type: ignore[assignment]
    #: 0 for challenges and tests, which have no sequence.
    sequence: int = 0
