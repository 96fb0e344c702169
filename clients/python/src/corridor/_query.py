"""Encodes query parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode


def query_of(params: Mapping[str, object]) -> str:
    """Encodes parameters as the API expects them: ``created[gte]=2026-11-01``. Omits None."""
    pairs = [pair for name, value in params.items() for pair in _pairs_of(name, value)]
    return "" if not pairs else f"?{urlencode(pairs)}"


def _pairs_of(name: str, value: object) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _pairs_of(f"{name}[{key}]", item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield f"{name}[]", str(item)
    elif isinstance(value, bool):
        yield name, "true" if value else "false"
    else:
        yield name, str(value)
