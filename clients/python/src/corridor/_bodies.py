"""Encodes request bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import IO, Union

#: The text of a batch, or a file that is open for reading.
TextSource = Union[str, bytes, IO[str], IO[bytes]]

#: Four times the API's maximum body size. Anything larger is a mistake and must not fill memory.
MOST_BYTES = 4 * 8 * 1024 * 1024


def json_body(value: object) -> bytes:
    """Writes one value as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def ndjson_body(items: Iterable[Mapping[str, object]]) -> bytes:
    """Writes items as NDJSON.

    Reads them one by one and keeps the text until the response arrives, because a retry must send
    the same bytes and an iterable can be read only once.
    """
    lines: list[bytes] = []
    length = 0
    for item in items:
        line = json_body(item) + b"\n"
        length += len(line)
        _check_length(length)
        lines.append(line)
    return b"".join(lines)


def csv_body(source: TextSource) -> bytes:
    """Reads a whole CSV text into memory, because a retry must send the same bytes."""
    text = source if isinstance(source, (str, bytes)) else source.read(MOST_BYTES + 1)
    content = text.encode() if isinstance(text, str) else text
    _check_length(len(content))
    return content


def _check_length(length: int) -> None:
    if length > MOST_BYTES:
        raise ValueError(f"A batch of more than {MOST_BYTES} bytes: split it into several.")
