"""Batches: up to 10,000 payouts in one request."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Literal

from typing_extensions import Unpack

from ._bodies import TextSource, csv_body, json_body, ndjson_body
from ._pages import Page
from ._payouts import new_key, path_of
from ._transport import Request, Transport
from ._waiting import DEFAULT_WAIT_SECONDS, READ_RETRIES, until_final
from .models import Batch, BatchPreview, CanceledBatch, Payout
from .params import BatchItemParams, ListBatchesParams, ListBatchPayoutsParams

Mode = Literal["best_effort", "all_or_nothing"]


class Batches:
    """Batches of up to 10,000 payouts in one request."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        *,
        payouts: Sequence[BatchItemParams],
        mode: Mode | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Sends payouts as JSON."""
        body = json_body({"payouts": list(payouts)})
        return self._create(body, "application/json", mode, idempotency_key, timeout)

    def create_from(
        self,
        items: Iterable[BatchItemParams],
        *,
        mode: Mode | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Sends the items of an iterable as NDJSON, reading them one by one."""
        # All items are read before anything is sent, so if the source fails, nothing was sent.
        body = ndjson_body(items)
        return self._create(body, "application/x-ndjson", mode, idempotency_key, timeout)

    def create_from_csv(
        self,
        csv: TextSource,
        *,
        mode: Mode | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Sends CSV with a header row of parameter names, such as ``metadata[order]``."""
        return self._create(csv_body(csv), "text/csv", mode, idempotency_key, timeout)

    def preview(
        self,
        *,
        payouts: Sequence[BatchItemParams],
        mode: Mode | None = None,
        timeout: float | None = None,
    ) -> BatchPreview:
        """Prices a batch and returns every refusal, without storing anything."""
        body = json_body({"payouts": list(payouts)})
        return self._preview(body, "application/json", mode, timeout)

    def preview_csv(
        self, csv: TextSource, *, mode: Mode | None = None, timeout: float | None = None
    ) -> BatchPreview:
        """The same for CSV."""
        return self._preview(csv_body(csv), "text/csv", mode, timeout)

    def retrieve(self, batch_id: str, *, timeout: float | None = None) -> Batch:
        """Reads a batch with its counts and totals."""
        request = Request("GET", path_of("batches", batch_id))
        return self._transport.send(request, Batch, timeout=timeout)

    def list(
        self, *, timeout: float | None = None, **params: Unpack[ListBatchesParams]
    ) -> Page[Batch]:
        """Lists batches, newest first."""
        return Page(self._transport, "/v1/batches", params, Batch, timeout)

    def payouts(
        self,
        batch_id: str,
        *,
        timeout: float | None = None,
        **params: Unpack[ListBatchPayoutsParams],
    ) -> Page[Payout]:
        """Lists the payouts of a batch, in the order of the request."""
        path = path_of("batches", batch_id, "/payouts")
        return Page(self._transport, path, params, Payout, timeout)

    def wait(self, batch_id: str, *, wait_timeout: float = DEFAULT_WAIT_SECONDS) -> Batch:
        """Waits until every payout of a batch is final.

        Raises CorridorWaitTimeoutError if they are not final within ``wait_timeout`` seconds.
        """
        started = time.monotonic()
        request = Request("GET", path_of("batches", batch_id))
        return until_final(
            self.retrieve(batch_id),
            is_final=lambda batch: batch.completed_at is not None,
            read=lambda: self._transport.send(request, Batch, max_retries=READ_RETRIES),
            started=started,
            wait_timeout=wait_timeout,
        )

    def cancel(
        self,
        batch_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> CanceledBatch:
        """Cancels the payouts that have not been sent to the bank yet."""
        path = path_of("batches", batch_id, "/cancel")
        request = Request("POST", path, idempotency_key=new_key(idempotency_key))
        return self._transport.send(request, CanceledBatch, timeout=timeout)

    def _create(
        self,
        body: bytes,
        content_type: str,
        mode: Mode | None,
        key: str | None,
        timeout: float | None,
    ) -> Batch:
        request = Request(
            "POST",
            "/v1/batches",
            query={"mode": mode},
            content=body,
            content_type=content_type,
            idempotency_key=new_key(key),
        )
        return self._transport.send(request, Batch, timeout=timeout)

    def _preview(
        self, body: bytes, content_type: str, mode: Mode | None, timeout: float | None
    ) -> BatchPreview:
        request = Request(
            "POST",
            "/v1/batches",
            query={"mode": mode, "validate_only": True},
            content=body,
            content_type=content_type,
        )
        return self._transport.send(request, BatchPreview, timeout=timeout)
