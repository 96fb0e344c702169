"""Verifies webhooks by Standard Webhooks 1.0."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence

from ._errors import WebhookVerificationError
from ._event_models import WebhookMessage

#: Standard Webhooks: a captured webhook is worthless after five minutes, and clocks differ.
TOLERANCE_SECONDS = 5 * 60


def verify_webhook(
    raw_body: str | bytes, headers: Mapping[str, str], secrets: str | Sequence[str] | None
) -> WebhookMessage:
    """Verifies a webhook and returns its event.

    ``raw_body`` is exactly what was received, before any parsing; ``secrets`` is the endpoint's
    ``whsec_…``, or several while one replaces another; None, of an endpoint that is not new, is a
    ValueError. Raises WebhookVerificationError when no
    secret made one of its signatures within five minutes.
    """
    body = raw_body.encode() if isinstance(raw_body, str) else raw_body
    sent = {name.lower(): value for name, value in headers.items()}
    message_id = _header(sent, "webhook-id")
    timestamp = _header(sent, "webhook-timestamp")
    signatures = _header(sent, "webhook-signature")
    if not re.fullmatch(r"[0-9]{1,12}", timestamp) or (
        abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS
    ):
        raise WebhookVerificationError("The webhook is older or newer than five minutes.")
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = [
        signature[len("v1,") :].encode()
        for signature in signatures.split(" ")
        if signature.startswith("v1,")
    ]
    for secret in [secrets or ""] if secrets is None or isinstance(secrets, str) else secrets:
        digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
        expected = base64.b64encode(digest)
        if any(hmac.compare_digest(expected, digest) for digest in digests):
            # A rate of an older API version is a number: never a float.
            return WebhookMessage.model_validate(json.loads(body, parse_float=str))
    raise WebhookVerificationError("No signature of the webhook is valid.")


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if value == "":
        raise WebhookVerificationError(f"The header {name} is missing.")
    return value


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError("A webhook secret looks like whsec_….") from error
    # An empty key would verify whatever anybody signs with it.
    if key == b"":
        raise ValueError("A webhook secret is empty: it looks like whsec_….")
    return key
