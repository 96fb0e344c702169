"""Resources without logic of their own: their methods only call the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from typing_extensions import Unpack

from ._base import Model
from ._bodies import json_body
from ._pages import Page
from ._payouts import new_key, path_of
from ._transport import Request, Transport
from .models import (
    Account,
    Balance,
    BalanceTransaction,
    Beneficiary,
    Calculation,
    BeneficiaryRequirements,
    Corridor,
    Delivery,
    Limit,
    PastRate,
    Quote,
    Rate,
    Redelivery,
    WebhookEndpoint,
    WebhookEndpointWithSecret,
    WebhookTest,
)
from .params import (
    ChangeAccountParams,
    CreateBeneficiaryParams,
    CreateQuoteParams,
    CreateWebhookEndpointParams,
    FundTestAccountParams,
    ListBalanceTransactionsParams,
    ListBeneficiariesParams,
    ListCorridorsParams,
    ListPastRatesParams,
    ListEndpointDeliveriesParams,
    ListRatesParams,
    ListWebhookEndpointsParams,
    ReadBeneficiaryRequirementsParams,
    RedeliverFailedParams,
    RotateWebhookEndpointSecretParams,
    UpdateBeneficiaryParams,
    UpdateWebhookEndpointParams,
)

Answer = TypeVar("Answer", bound=Model)


class _Resource:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _get(
        self,
        path: str,
        model: type[Answer],
        timeout: float | None,
        query: Mapping[str, object] | None = None,
    ) -> Answer:
        return self._transport.send(Request("GET", path, query=query or {}), model, timeout=timeout)

    def _post(
        self,
        path: str,
        params: Mapping[str, object],
        model: type[Answer],
        key: str | None,
        timeout: float | None,
    ) -> Answer:
        request = Request(
            "POST", path, content=json_body(params), idempotency_key=new_key(key)
        )
        return self._transport.send(request, model, timeout=timeout)

    def _delete(
        self, path: str, model: type[Answer], key: str | None, timeout: float | None
    ) -> Answer:
        request = Request("DELETE", path, idempotency_key=new_key(key))
        return self._transport.send(request, model, timeout=timeout)


class Quotes(_Resource):
    """Prices, each held for 30 seconds."""

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[CreateQuoteParams],
    ) -> Quote:
        """Prices a payout and holds the rate for 30 seconds."""
        return self._post("/v1/quotes", params, Quote, idempotency_key, timeout)

    def retrieve(self, quote_id: str, *, timeout: float | None = None) -> Quote:
        """Reads a quote."""
        return self._get(path_of("quotes", quote_id), Quote, timeout)

    def calculation(self, quote_id: str, *, timeout: float | None = None) -> Calculation:
        """Reads how a quote's price was computed."""
        return self._get(path_of("quotes", quote_id, "/calculation"), Calculation, timeout)


class Beneficiaries(_Resource):
    """Beneficiaries of payouts, with validated account details."""

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[CreateBeneficiaryParams],
    ) -> Beneficiary:
        """Validates and stores a beneficiary's account details."""
        return self._post("/v1/beneficiaries", params, Beneficiary, idempotency_key, timeout)

    def retrieve(self, beneficiary_id: str, *, timeout: float | None = None) -> Beneficiary:
        """Reads a beneficiary. Its account number is masked."""
        return self._get(path_of("beneficiaries", beneficiary_id), Beneficiary, timeout)

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListBeneficiariesParams]
    ) -> Page[Beneficiary]:
        """Lists beneficiaries, newest first."""
        return Page(self._transport, "/v1/beneficiaries", params, Beneficiary, timeout)

    def update(
        self,
        beneficiary_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[UpdateBeneficiaryParams],
    ) -> Beneficiary:
        """Changes the given details. Accepted payouts keep the previous ones."""
        path = path_of("beneficiaries", beneficiary_id)
        return self._post(path, params, Beneficiary, idempotency_key, timeout)

    def delete(
        self,
        beneficiary_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Beneficiary:
        """Deletes a beneficiary, which can then receive no more payouts."""
        path = path_of("beneficiaries", beneficiary_id)
        return self._delete(path, Beneficiary, idempotency_key, timeout)


class WebhookEndpoints(_Resource):
    """The endpoints that events are sent to."""

    def create(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[CreateWebhookEndpointParams],
    ) -> WebhookEndpointWithSecret:
        """Creates an endpoint. Only this response contains the secret that verify_webhook needs."""
        return self._post(
            "/v1/webhook_endpoints", params, WebhookEndpointWithSecret, idempotency_key, timeout
        )

    def retrieve(self, endpoint_id: str, *, timeout: float | None = None) -> WebhookEndpoint:
        """Reads an endpoint, without its secret."""
        return self._get(path_of("webhook_endpoints", endpoint_id), WebhookEndpoint, timeout)

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListWebhookEndpointsParams]
    ) -> Page[WebhookEndpoint]:
        """Lists endpoints, newest first."""
        return Page(self._transport, "/v1/webhook_endpoints", params, WebhookEndpoint, timeout)

    def deliveries(
        self,
        endpoint_id: str,
        *,
        timeout: float | None = None,
        **params: Unpack[ListEndpointDeliveriesParams],
    ) -> Page[Delivery]:
        """Lists the deliveries to an endpoint, newest event first."""
        path = path_of("webhook_endpoints", endpoint_id, "/deliveries")
        return Page(self._transport, path, params, Delivery, timeout)

    def update(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[UpdateWebhookEndpointParams],
    ) -> WebhookEndpoint:
        """Changes an endpoint's URL, events or status. status="enabled" resumes deliveries."""
        path = path_of("webhook_endpoints", endpoint_id)
        return self._post(path, params, WebhookEndpoint, idempotency_key, timeout)

    def redeliver(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[RedeliverFailedParams],
    ) -> Redelivery:
        """Redelivers events: those that failed since a time, or all in a range of sequences."""
        path = path_of("webhook_endpoints", endpoint_id, "/redeliver")
        return self._post(path, params, Redelivery, idempotency_key, timeout)

    def verify(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> WebhookEndpoint:
        """Sends a challenge to an unverified endpoint. A correct response enables its events."""
        path = path_of("webhook_endpoints", endpoint_id, "/verify")
        return self._post(path, {}, WebhookEndpoint, idempotency_key, timeout)

    def test(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> WebhookTest:
        """Sends a test message to a verified endpoint and returns the outcome."""
        path = path_of("webhook_endpoints", endpoint_id, "/test")
        return self._post(path, {}, WebhookTest, idempotency_key, timeout)

    def rotate_secret(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[RotateWebhookEndpointSecretParams],
    ) -> WebhookEndpointWithSecret:
        """Replaces the secret. Only this response contains it. Both sign for overlap_hours."""
        path = path_of("webhook_endpoints", endpoint_id, "/rotate_secret")
        return self._post(path, params, WebhookEndpointWithSecret, idempotency_key, timeout)

    def revoke_old_secret(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> WebhookEndpoint:
        """Ends the overlap of a rotation: from now on only the newest secret signs."""
        path = path_of("webhook_endpoints", endpoint_id, "/revoke_old_secret")
        return self._post(path, {}, WebhookEndpoint, idempotency_key, timeout)

    def delete(
        self,
        endpoint_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> WebhookEndpoint:
        """Deletes an endpoint: no more events are sent to it."""
        path = path_of("webhook_endpoints", endpoint_id)
        return self._delete(path, WebhookEndpoint, idempotency_key, timeout)


class Balances(_Resource):
    """The account's balances, by currency."""

    def list(self, *, timeout: float | None = None) -> Page[Balance]:
        """Lists the balances."""
        return Page(self._transport, "/v1/balances", {}, Balance, timeout)


class Limits(_Resource):
    """The account's limits and how much of each is used."""

    def list(self, *, timeout: float | None = None) -> Page[Limit]:
        """Lists the limits."""
        return Page(self._transport, "/v1/limits", {}, Limit, timeout)


class BalanceTransactions(_Resource):
    """All movements of the balances."""

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListBalanceTransactionsParams]
    ) -> Page[BalanceTransaction]:
        """Lists the movements, newest first."""
        path = "/v1/balance_transactions"
        return Page(self._transport, path, params, BalanceTransaction, timeout)


class Corridors(_Resource):
    """The currency pairs that can be paid, with fees and limits."""

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListCorridorsParams]
    ) -> Page[Corridor]:
        """Lists the corridors of the account."""
        return Page(self._transport, "/v1/corridors", params, Corridor, timeout)


class Rates(_Resource):
    """The current rates of corridors. A quote holds a rate for 30 seconds."""

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListRatesParams]
    ) -> Page[Rate]:
        """Lists the current rates."""
        return Page(self._transport, "/v1/rates", params, Rate, timeout)

    def history(
        self, *, timeout: float | None = None, **params: Unpack[ListPastRatesParams]
    ) -> Page[PastRate]:
        """Lists the published mid rates of two currencies, newest first."""
        return Page(self._transport, "/v1/rates/history", params, PastRate, timeout)


class _WebhookKey(Model):
    whpk: str


class _WebhookKeySet(Model):
    keys: list[_WebhookKey]


class WebhookKeys(_Resource):
    """The public keys that verify webhooks without a secret."""

    def list(self, *, timeout: float | None = None) -> Sequence[str]:
        """Lists the keys, ``whpk_…``.

        Cache them for five minutes: a new key is published for longer than that before it signs.
        """
        path = "/.well-known/corridor-webhook-keys"
        return [key.whpk for key in self._get(path, _WebhookKeySet, timeout).keys]


class Requirements(_Resource):
    """The beneficiary details that a country requires."""

    def retrieve(
        self, *, timeout: float | None = None, **params: Unpack[ReadBeneficiaryRequirementsParams]
    ) -> BeneficiaryRequirements:
        """Reads the requirements of a country."""
        path = "/v1/beneficiary_requirements"
        return self._get(path, BeneficiaryRequirements, timeout, params)


class AccountOfKey(_Resource):
    """The account of the API key."""

    def retrieve(self, *, timeout: float | None = None) -> Account:
        """Reads the account."""
        return self._get("/v1/account", Account, timeout)

    def update(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[ChangeAccountParams],
    ) -> Account:
        """Sets the default API version of requests and new webhook endpoints."""
        return self._post("/v1/account", params, Account, idempotency_key, timeout)


class TestAccounts(_Resource):
    """Functions that are only available to test accounts."""

    def fund(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        **params: Unpack[FundTestAccountParams],
    ) -> Balance:
        """Adds money to the balance of a test account."""
        return self._post("/v1/test/fund", params, Balance, idempotency_key, timeout)
