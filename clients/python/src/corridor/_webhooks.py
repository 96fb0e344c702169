"""Verifies webhooks according to Standard Webhooks 1.0."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._errors import WebhookVerificationError
from ._event_models import WebhookMessage

#: One or two of each kind are sent. A header with more only wants to waste CPU time.
MOST_SIGNATURES = 10

#: The type of a webhook that contains several events.
BATCH = "event.batch"

#: As in Standard Webhooks: allows for clock differences and limits replays to five minutes.
TOLERANCE_SECONDS = 5 * 60


def verify_webhook(
    raw_body: str | bytes, headers: Mapping[str, str], secrets: str | Sequence[str] | None
) -> WebhookMessage:
    """Verifies a webhook and returns its event.

    An endpoint with ``batching`` receives several events per webhook, for which this raises a
    ValueError: use verify_webhook_events.

    ``raw_body`` is the body exactly as received, before any parsing. ``secrets`` is the endpoint's
    secret, ``whsec_…``, or a public key of the service, ``whpk_…``, or several of them during a
    rotation. None, which the API returns except for new endpoints, is a ValueError. Public keys
    need the package ``cryptography``, which the extra ``ed25519`` installs. Raises
    WebhookVerificationError if none of them verifies a signature of the last five minutes.
    """
    message = _verified(raw_body, headers, secrets)
    if message["type"] == BATCH:
        raise ValueError("The webhook is a batch of events: use verify_webhook_events.")
    return WebhookMessage.model_validate(message)


def verify_webhook_events(
    raw_body: str | bytes, headers: Mapping[str, str], secrets: str | Sequence[str] | None
) -> list[WebhookMessage]:
    """Verifies a webhook like verify_webhook and returns its events ordered by sequence.

    There are up to 100 if the endpoint has ``batching``, otherwise one. Delivery is at least once,
    so an event may be repeated in this or another batch: ignore events whose ``id`` you have
    already processed.
    """
    message = _verified(raw_body, headers, secrets)
    events = message["data"] if message["type"] == BATCH else [message]
    return [WebhookMessage.model_validate(event) for event in events]


def _verified(
    raw_body: str | bytes, headers: Mapping[str, str], secrets: str | Sequence[str] | None
) -> dict[str, Any]:
    body = raw_body.encode(errors="surrogateescape") if isinstance(raw_body, str) else raw_body
    sent = {name.lower(): value for name, value in headers.items()}
    message_id = _header(sent, "webhook-id")
    timestamp = _header(sent, "webhook-timestamp")
    signatures = _header(sent, "webhook-signature")
    if not re.fullmatch(r"[0-9]{1,12}", timestamp) or (
        abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS
    ):
        raise WebhookVerificationError("The webhook is older or newer than five minutes.")
    signed = f"{message_id}.{timestamp}.".encode(errors="surrogateescape") + body
    pairs = [signature.partition(",") for signature in signatures.split(" ")[:MOST_SIGNATURES]]
    for secret in [secrets or ""] if secrets is None or isinstance(secrets, str) else secrets:
        is_public = secret.startswith("whpk_")
        version = "v1a" if is_public else "v1"
        is_signed = _verifier_of(secret) if is_public else _authenticator_of(secret)
        if any(is_signed(signed, sent) for name, _, sent in pairs if name == version):
            # In older API versions rates are numbers, which must never become floats.
            message: dict[str, Any] = json.loads(body, parse_float=str)
            return message
    raise WebhookVerificationError("No signature of the webhook is valid.")


def challenge_of(event: WebhookMessage, endpoint_id: str | Sequence[str]) -> str | None:
    """Returns the challenge of a webhook that verifies your endpoint, None for any other webhook.

    Respond with a 2xx status and only the challenge as the body. ``event`` is the result of
    verify_webhook, so that you never answer a challenge from anyone else.

    ``endpoint_id`` is the ID of your endpoint, or a list of several. For any other endpoint the
    result is None: the public keys sign for all accounts, so a stranger may have registered your
    URL as their own endpoint.
    """
    if event.type != "webhook_endpoint.challenge":
        return None
    data = event.data.model_extra or {}
    yours = [endpoint_id] if isinstance(endpoint_id, str) else endpoint_id
    challenge = data.get("challenge") if data.get("webhook_endpoint") in yours else None
    return challenge if isinstance(challenge, str) else None


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if value == "":
        raise WebhookVerificationError(f"The header {name} is missing.")
    return value


def _authenticator_of(secret: str) -> Callable[[bytes, str], bool]:
    key = _key_of(secret)

    def is_signed(signed: bytes, sent: str) -> bool:
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        return hmac.compare_digest(expected, sent.encode(errors="surrogateescape"))

    return is_signed


def _verifier_of(public_key: str) -> Callable[[bytes, str], bool]:
    # Imported here because only verification with public keys needs the package.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key_bytes = base64.b64decode(public_key.removeprefix("whpk_"), validate=True)
        key = Ed25519PublicKey.from_public_bytes(key_bytes)
    except ValueError as error:
        raise ValueError("A public key of webhooks looks like whpk_….") from error

    def is_signed(signed: bytes, sent: str) -> bool:
        try:
            key.verify(base64.b64decode(sent, validate=True), signed)
        except (ValueError, InvalidSignature):
            return False
        return True

    return is_signed


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError("A webhook secret looks like whsec_….") from error
    # With an empty key, anyone could forge a signature.
    if key == b"":
        raise ValueError("A webhook secret is empty: it looks like whsec_….")
    return key
