"""The client for Corridor, a cross-currency payout service."""

from . import models, params
from ._client import Corridor
from ._errors import (
    CorridorConnectionError,
    CorridorProblem,
    CorridorWaitTimeoutError,
    WebhookVerificationError,
)
from ._event_models import Event, UnknownObject, WebhookMessage
from ._pages import Page
from ._webhooks import challenge_of, verify_webhook, verify_webhook_events

__all__ = [
    "Corridor",
    "CorridorConnectionError",
    "CorridorProblem",
    "CorridorWaitTimeoutError",
    "Event",
    "Page",
    "UnknownObject",
    "WebhookMessage",
    "WebhookVerificationError",
    "challenge_of",
    "models",
    "params",
    "verify_webhook",
    "verify_webhook_events",
]
