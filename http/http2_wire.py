"""h2's connection, with shortcuts for what clients send and are sent again and again.

Lives here: nothing that changes what is accepted or what is meant; whatever is not exactly one of these goes h2's way.

- A header block of bytes seen before, while the table that it refers to has not changed, means what it meant (RFC 7541
  §2.2: decoding depends on nothing else).
- WINDOW_UPDATE frames alone, of streams that are open: Go's clients answer every 4 KB with two.
- Answers' fields are literals without indexing, not Huffman-coded: some 100 bytes more, and a twentieth of the time.
- Streams are counted, which takes a look at each, only where there may be too many, or a few have been opened since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import h2.connection
import hpack
from h2.stream import StreamState
from hpack.hpack import encode_integer
from hpack.table import HeaderTable

BLOCKS: Final = 16
BLOCK_BYTES: Final = 1024
"""Header blocks remembered of a connection, and the longest."""
COMMON_BYTES: Final = 64
MAX_COMMON: Final = 512
"""Fields of answers whose encoding is remembered: those with short values, and how many."""
SWEEP: Final = 4
"""Streams opened, and a part of those that were open, before they are counted and the closed ones put away."""
MAX_UPDATES: Final = 64
LARGE_UPDATE, LARGE_WINDOW = 1 << 24, 1 << 30
"""Not reached by so many updates of less than so much: no window that is less than so large grows beyond 2³¹ - 1."""

_UPDATE: Final = b"\x00\x00\x04\x08\x00"
_UPDATE_SIZE: Final = 13
_SIZE_CHANGE: Final = 0x20, 0xE0
_OPEN: Final = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE})

_static = {field: 0x80 | number for number, field in enumerate(HeaderTable.STATIC_TABLE, 1)}
_names: dict[bytes, int] = {}
for _number, (_name, _) in enumerate(HeaderTable.STATIC_TABLE, 1):
    _names.setdefault(_name, _number)
_common: dict[tuple[bytes, bytes], bytes] = {}
_CHANGING: Final = frozenset({b"audit-id", b"content-length", b"date", b"warning"})


class KnownBlocks(hpack.Decoder):
    """A decoder that remembers what blocks meant."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, list[Any]] = {}

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:
        found = self._known.get(data)
        if found is not None:
            return found
        entries = self.header_table.dynamic_entries
        before = (len(entries), entries[0] if entries else None)
        headers = list(super().decode(data, raw=raw))
        entries = self.header_table.dynamic_entries
        value, mask = _SIZE_CHANGE
        if data and data[0] & mask == value:
            self._known.clear()
        elif (len(entries), entries[0] if entries else None) != before or (entries and entries[0] is not before[1]):
            self._known.clear()  # a new first entry moves all others
        elif raw and len(data) <= BLOCK_BYTES and len(self._known) < BLOCKS:
            self._known[data] = headers
        return headers


class PlainEncoder(hpack.Encoder):
    """An encoder that keeps nothing in its table. Names and values are bytes, names in lower case."""

    def encode(self, headers: Any, huffman: bool = False) -> bytes:
        parts = []
        if self.header_table.resized:
            parts.append(self._encode_table_size_change())
            self.header_table.resized = False
        for field in headers:
            part = _common.get(field)
            if part is None:
                part = _literal(*field)
                if len(field[1]) <= COMMON_BYTES and len(_common) < MAX_COMMON and field[0] not in _CHANGING:
                    _common[field] = part
            parts.append(part)
        return b"".join(parts)


def _literal(name: bytes, value: bytes) -> bytes:
    """RFC 7541 §6.1 for what the static table has, otherwise §6.2.2."""
    index = _static.get((name, value))
    if index is not None:
        return bytes((index,))
    number = _names.get(name, 0)
    parts = [bytes(encode_integer(number, 4))]
    if not number:
        parts += (bytes(encode_integer(len(name), 7)), name)
    parts += (bytes(encode_integer(len(value), 7)), value)
    return b"".join(parts)


class LeanConnection(h2.connection.H2Connection):
    def __init__(self, config: Any) -> None:
        super().__init__(config=config)
        self.decoder = KnownBlocks()
        self.decoder.max_header_list_size = self.DEFAULT_MAX_HEADER_LIST_SIZE
        self.encoder = PlainEncoder()
        self._sweep_at = 0

    def _open_streams(self, remainder: int) -> int:
        """At most as many are open as there are."""
        streams = len(self.streams)
        if streams < min(self._sweep_at, self.local_settings.max_concurrent_streams):
            return streams
        found = super()._open_streams(remainder)
        self._sweep_at = found + max(SWEEP, found // SWEEP)
        return found

    def receive_window_updates(self, data: bytes) -> list[int] | None:
        """The streams, 0 for the connection, whose windows are larger now; None: there is something else in the data,
        and nothing has been looked at."""
        size = len(data)
        if size % _UPDATE_SIZE or data[:5] != _UPDATE or size > MAX_UPDATES * _UPDATE_SIZE:
            return None
        buffer = self.incoming_buffer
        if buffer._data or buffer._preamble_len or buffer._headers_buffer:
            return None  # in the middle of something
        found: list[tuple[int, int]] = []
        for start in range(0, size, _UPDATE_SIZE):
            if data[start : start + 5] != _UPDATE:
                return None
            stream_id = int.from_bytes(data[start + 5 : start + 9], "big") & 0x7FFFFFFF
            increment = int.from_bytes(data[start + 9 : start + 13], "big") & 0x7FFFFFFF
            window: int
            if stream_id:
                stream = self.streams.get(stream_id)
                if stream is None or stream.state_machine.state not in _OPEN:
                    return None
                window = stream.outbound_flow_control_window
            else:
                window = self.outbound_flow_control_window
            if not 0 < increment < LARGE_UPDATE or window >= LARGE_WINDOW:
                return None
            found.append((stream_id, increment))
        for stream_id, increment in found:
            if stream_id:
                self.streams[stream_id].outbound_flow_control_window += increment
            else:
                self.outbound_flow_control_window += increment
        return [stream_id for stream_id, _ in found]
