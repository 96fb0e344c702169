"""The client for one account."""

from __future__ import annotations

import os
from types import TracebackType

import httpx
from typing_extensions import Self

from ._batches import Batches
from ._events import Events
from ._payouts import Payouts
from ._resources import (
    AccountOfKey,
    Balances,
    Limits,
    BalanceTransactions,
    Beneficiaries,
    Corridors,
    Quotes,
    Rates,
    Requirements,
    TestAccounts,
    WebhookEndpoints,
    WebhookKeys,
)
from ._transport import (
    DEFAULT_MAX_RETRIES,
    DEFAULT_TIMEOUT_SECONDS,
    DESCRIBED_VERSION,
    Transport,
)


class Corridor:
    """A client for one account.

    ``api_key`` and ``api_url`` default to CORRIDOR_API_KEY and CORRIDOR_API_URL. ``timeout`` is the
    timeout of one attempt in seconds. The client is thread-safe. Call ``close``, or use it in a
    ``with`` statement, to close its connections.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        api_url: str | None = None,
        api_version: str = DESCRIBED_VERSION,
        max_retries: int = DEFAULT_MAX_RETRIES,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        http_client: httpx.Client | None = None,
    ) -> None:
        self._transport = Transport(
            api_key=api_key or _from_environment("CORRIDOR_API_KEY", "api_key"),
            api_url=api_url or _from_environment("CORRIDOR_API_URL", "api_url"),
            api_version=api_version,
            max_retries=max_retries,
            timeout=timeout,
            http_client=http_client,
        )
        self.quotes = Quotes(self._transport)
        self.payouts = Payouts(self._transport)
        self.batches = Batches(self._transport)
        self.beneficiaries = Beneficiaries(self._transport)
        self.beneficiary_requirements = Requirements(self._transport)
        self.corridors = Corridors(self._transport)
        self.rates = Rates(self._transport)
        self.balances = Balances(self._transport)
        self.limits = Limits(self._transport)
        self.balance_transactions = BalanceTransactions(self._transport)
        self.webhook_endpoints = WebhookEndpoints(self._transport)
        self.webhook_keys = WebhookKeys(self._transport)
        self.events = Events(self._transport)
        self.account = AccountOfKey(self._transport)
        self.test = TestAccounts(self._transport)

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _from_environment(name: str, option: str) -> str:
    value = os.environ.get(name, "")
    if value == "":
        raise TypeError(f"Set {name}, or give {option} to Corridor().")
    return value
