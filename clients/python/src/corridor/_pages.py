"""Paginated lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from ._base import Model
from ._errors import CorridorConnectionError
from ._transport import Request, Transport

Item = TypeVar("Item", bound=Model)

#: Page size after the first page, unless the caller sets a limit: the API's maximum.
LONGEST_PAGE = 100


class _RawPage(Model):
    data: list[object]
    has_more: bool


class Page(Generic[Item]):
    """A page of a list. Iterates over the items of this page and all following pages."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        params: Mapping[str, object],
        model: type[Item],
        timeout: float | None = None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._params = {name: value for name, value in params.items() if value is not None}
        self._model = model
        self._timeout = timeout
        raw_page = transport.send(
            Request("GET", path, query=self._params), _RawPage, timeout=timeout
        )
        #: The objects of this page.
        self.data: list[Item] = [model.model_validate(item) for item in raw_page.data]
        #: Whether there are more pages.
        self.has_more: bool = raw_page.has_more

    def __iter__(self) -> Iterator[Item]:
        page: Page[Item] | None = self
        # Terminates with the list, because each page starts after the previous one and has items.
        while page is not None:
            yield from reversed(page.data) if page._is_backwards else page.data
            page = page.next_page()

    def next_page(self) -> Page[Item] | None:
        """Reads the next page. Returns None after the last one."""
        if not self.has_more:
            return None
        cursor = "ending_before" if self._is_backwards else "starting_after"
        params = {"limit": LONGEST_PAGE, **self._params, cursor: self._last_id()}
        return Page(self._transport, self._path, params, self._model, self._timeout)

    def _last_id(self) -> str:
        """Returns the ID after which the next page starts. Raises if the last item has none."""
        last = self.data[:1] if self._is_backwards else self.data[-1:]
        last_id: object = None
        if last:
            # Deliveries have no ID. The cursor of an endpoint's deliveries is the event's ID.
            last_id = getattr(last[0], "id", None) or getattr(last[0], "event", None)
        if isinstance(last_id, str):
            return last_id
        message = "The list goes on behind an object without an id, so its rest cannot be read."
        raise CorridorConnectionError(message, None, 1)

    @property
    def _is_backwards(self) -> bool:
        return "ending_before" in self._params
