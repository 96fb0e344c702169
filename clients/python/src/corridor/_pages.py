"""Lists, which come in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from ._base import Model
from ._errors import CorridorConnectionError
from ._transport import Request, Transport

Item = TypeVar("Item", bound=Model)

#: Pages after the first are as long as they may be, unless the caller says otherwise.
LONGEST_PAGE = 100


class _Answered(Model):
    data: list[object]
    has_more: bool


class Page(Generic[Item]):
    """A page of a list. To iterate goes through this page and all that follow it."""

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
        answered = transport.send(
            Request("GET", path, query=self._params), _Answered, timeout=timeout
        )
        #: The objects of this page.
        self.data: list[Item] = [model.model_validate(item) for item in answered.data]
        #: Whether more follow it.
        self.has_more: bool = answered.has_more

    def __iter__(self) -> Iterator[Item]:
        page: Page[Item] | None = self
        # The list itself is the limit: each page begins behind the one before, and has items.
        while page is not None:
            yield from reversed(page.data) if page._is_backwards else page.data
            page = page.next_page()

    def next_page(self) -> Page[Item] | None:
        """Reads the page that follows, or returns None after the last one."""
        if not self.has_more:
            return None
        cursor = "ending_before" if self._is_backwards else "starting_after"
        params = {"limit": LONGEST_PAGE, **self._params, cursor: self._last_id()}
        return Page(self._transport, self._path, params, self._model, self._timeout)

    def _last_id(self) -> str:
        """The id behind which the next page begins: without it the list would be cut off."""
        last = self.data[:1] if self._is_backwards else self.data[-1:]
        last_id: object = None
        if last:
            # A delivery has no id of its own: a list of an endpoint's goes on behind an event.
            last_id = getattr(last[0], "id", None) or getattr(last[0], "event", None)
        if isinstance(last_id, str):
            return last_id
        message = "The list goes on behind an object without an id, so its rest cannot be read."
        raise CorridorConnectionError(message, None, 1)

    @property
    def _is_backwards(self) -> bool:
        return "ending_before" in self._params
