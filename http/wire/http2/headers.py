"""Header blocks of HTTP/2: HPACK (RFC 7541) in both directions, and requests made of them (RFC 9113 §8.2, §8.3).

Most requests of a connection have the same fields, so each field is checked once: when it enters the table. Decoding
depends on the block and the table only. So while the table has not changed, a known block is not decoded again. Fields
of answers are literals without table and Huffman code: some 100 bytes more, in a twentieth of the time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from hpack.exceptions import HPACKDecodingError
from hpack.hpack import encode_integer
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from kubechronicle.api.values.caches import CACHES, KeptDict
from kubechronicle.http.messages import Headers
from kubechronicle.http.wire.exchange import split_target
from kubechronicle.http.wire.http2.frames import ConnectionFailed, ErrorCode

TABLE_SIZE: Final = 4096
"""Bytes of the client's table (the default of SETTINGS_HEADER_TABLE_SIZE)."""
BLOCKS: Final = 16
BLOCK_BYTES: Final = 1024
"""Number and maximum bytes of the header blocks that a connection remembers."""
COMMON_BYTES: Final = 96
MAX_COMMON: Final = 512
"""Maximum bytes and number of the answers' fields whose encoding is remembered."""
NO_TABLE: Final = b"\x20"
"""The beginning of our first header block: it sets our table to size 0, which any setting of the client allows (RFC
7541 §4.2)."""
CONNECTION_FIELDS: Final = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
"""Fields that belong to one HTTP/1.1 connection and are malformed in HTTP/2 (RFC 9113 §8.2.2)."""
PSEUDO_FIELDS: Final = frozenset({":method", ":scheme", ":authority", ":path"})
FRAMING_FIELDS: Final = frozenset({"host", "content-length", "cookie"})
SCHEMES: Final = frozenset({"https", "http"})

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(r"(?:[^\0-\x20\x7f](?:[^\0-\x08\n-\x1f\x7f]*[^\0-\x20\x7f])?)?")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_TARGET: Final = re.compile(r"[!-~]+")

REGULAR, PSEUDO, FRAMING, MALFORMED, BLANKS = range(5)

K = TypeVar("K")

Entry: TypeAlias = tuple[tuple[str, str], int, int]
"""A field, its size as in RFC 7541 §4.1, and its class (one of the constants above)."""


class RequestHead(NamedTuple):
    """A request without its body. ``headers``: to be copied before use. ``length``: the declared length of the body."""

    method: str
    scheme: str
    raw_path: str
    query_string: str
    headers: Headers
    length: int | None


class HeadersTooLarge(Exception):
    """The header list is too long. The table is valid nevertheless."""


class Malformed(Exception):
    """Not a request (RFC 9113 §8.1.1)."""


def _without_blanks(name: str, value: str) -> str:
    """Return the value of a regular field without blanks at its ends, as HTTP/1.1 has it.

    RFC 9113 §8.2.1 calls them malformed. But Go's server takes them, and client-go sends "Bearer " for an empty token.
    """
    is_regular = name[:1] != ":" and name not in FRAMING_FIELDS
    return value.strip(" \t") if is_regular else value


def _entry(name: str, value: str) -> Entry:
    kind, bare = REGULAR, _without_blanks(name, value)
    if not _VALUE.fullmatch(bare) or name in CONNECTION_FIELDS or (name == "te" and value.lower() != "trailers"):
        kind = MALFORMED
    elif name in PSEUDO_FIELDS:
        kind = PSEUDO
    elif not _NAME.fullmatch(name):
        kind = MALFORMED
    elif name in FRAMING_FIELDS:
        kind = FRAMING
    elif bare != value:
        kind = BLANKS
    return (name, value), len(name) + len(value) + 32, kind


_STATIC: Final = tuple(_entry(name.decode(), value.decode()) for name, value in HeaderTable.STATIC_TABLE)
_STATIC_END: Final = len(_STATIC)


class BlockDecoder:
    """One per connection. ``limit``: bytes of a header list, as in RFC 9113 §10.5.1."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: deque[Entry] = deque()  # the newest first
        self._used = 0
        self._capacity = TABLE_SIZE
        self._known: dict[bytes, RequestHead] = {}
        self._changed = False

    @property
    def changed(self) -> bool:
        """True if the last block has changed the table."""
        return self._changed

    def request(self, block: bytes) -> RequestHead:
        """Decode a request. Raises ConnectionFailed, HeadersTooLarge, Malformed."""
        known = self._known.get(block)
        if known is not None:
            return known
        request = request_head(self.fields(block))
        if not self._changed and len(block) <= BLOCK_BYTES and len(self._known) < BLOCKS:
            self._known[block] = request
        return request

    def fields(self, block: bytes) -> list[Entry]:
        """Decode fields. Raises ConnectionFailed, HeadersTooLarge."""
        self._changed = False
        try:
            entries, size = self._decode(block)
        except (IndexError, HPACKDecodingError):
            raise ConnectionFailed(ErrorCode.COMPRESSION_ERROR) from None
        finally:
            if self._changed:
                self._known.clear()
        if size > self._limit:
            raise HeadersTooLarge
        return entries

    def _decode(self, block: bytes) -> tuple[list[Entry], int]:
        """Return the fields that fit within the limit, and the size of all."""
        entries: list[Entry] = []
        limit, at, end, size = self._limit, 0, len(block), 0
        while at < end:
            byte = block[at]
            if byte & 0x80:
                index, at = (byte & 0x7F, at + 1) if byte < 0xFF else _integer(block, at, 0x7F)
                entry = self._at(index)
            elif byte & 0xE0 == 0x20:
                at = self._resize(block, at, first=not size)
                continue
            else:
                indexing = byte & 0x40
                index, at = _integer(block, at, 0x3F if indexing else 0x0F)
                if index:
                    name = self._at(index)[0][0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                entry = _entry(name, value)
                if indexing:
                    self._insert(entry)
            size += entry[1]
            if size <= limit:
                entries.append(entry)
        return entries, size

    def _at(self, index: int) -> Entry:
        if not index:
            raise IndexError
        if index <= _STATIC_END:
            return _STATIC[index - 1]
        return self._entries[index - _STATIC_END - 1]

    def _insert(self, entry: Entry) -> None:
        self._changed = True
        self._shrink(self._capacity - entry[1])
        if entry[1] <= self._capacity:
            self._entries.appendleft(entry)
            self._used += entry[1]

    def _resize(self, block: bytes, at: int, *, first: bool) -> int:
        capacity, at = _integer(block, at, 0x1F)
        if not first or capacity > TABLE_SIZE:
            raise ConnectionFailed(ErrorCode.COMPRESSION_ERROR)
        self._changed = True
        self._capacity = capacity
        self._shrink(capacity)
        return at

    def _shrink(self, size: int) -> None:
        while self._entries and self._used > size:
            self._used -= self._entries.pop()[1]


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return an integer (RFC 7541 §5.1) and the position after it. Raises IndexError."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21, 28):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError


def _string(block: bytes, at: int) -> tuple[str, int]:
    """Return a string (RFC 7541 §5.2) and the position after it. Raises IndexError, HPACKDecodingError."""
    coded = block[at] & 0x80
    length, start = _integer(block, at, 0x7F)
    end = start + length
    if end > len(block):
        raise IndexError
    data = block[start:end]
    if coded:
        data = decode_huffman(data)
    return data.decode("latin-1"), end


def request_head(fields: Iterable[Entry]) -> RequestHead:
    """Return the head of a request. Raises Malformed."""
    pseudo: dict[str, str] = {}
    items: list[tuple[str, str]] = []
    framing: list[tuple[str, str]] = []
    for field, _, kind in fields:
        if kind == REGULAR:
            items.append(field)
        elif kind == PSEUDO:
            if items or framing or field[0] in pseudo:
                raise Malformed
            pseudo[field[0]] = field[1]
        elif kind == FRAMING:
            framing.append(field)
        elif kind == BLANKS:
            items.append((field[0], _without_blanks(*field)))
        else:
            raise Malformed
    try:
        method, scheme, target = pseudo[":method"], pseudo[":scheme"], pseudo[":path"]
        if not (_TOKEN.fullmatch(method) and scheme in SCHEMES and _TARGET.fullmatch(target)) or method == "CONNECT":
            raise Malformed
        raw_path, query_string = split_target(target.encode())
    except (KeyError, ValueError):
        raise Malformed from None
    host, length = _framing(framing, pseudo.get(":authority"), items)
    return RequestHead(method, scheme, raw_path, query_string, Headers([("host", host), *items]), length)


def _framing(
    fields: list[tuple[str, str]], authority: str | None, items: list[tuple[str, str]]
) -> tuple[str, int | None]:
    """Return the host and the declared length. Add the length, and cookies joined to one field, to ``items``."""
    hosts: set[str] = set() if authority is None else {authority}
    lengths: list[str] = []
    cookies: list[str] = []
    for name, value in fields:
        if name == "host":
            hosts.add(value)
        elif name == "content-length":
            lengths.append(value)
        else:
            cookies.append(value)
    if len(hosts) != 1 or len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0])):
        raise Malformed
    items += (("content-length", value) for value in lengths)
    if cookies:
        items.append(("cookie", "; ".join(cookies)))  # RFC 9113 §8.2.3
    return hosts.pop(), int(lengths[0]) if lengths else None


def is_trailer(fields: Iterable[Entry]) -> bool:
    """Tell whether these fields may be trailers: no pseudo-field, none malformed (RFC 9113 §8.1)."""
    return all(kind in (REGULAR, FRAMING, BLANKS) for _, _, kind in fields)


# -- answers --------------------------------------------------------------------------------------------------------


class _Forms(KeptDict[K, bytes]):
    """Encoded forms: those of the static table, which stay, and common ones of answers, until an erasure."""

    __slots__ = ("_static",)

    def __init__(self, static: Mapping[K, bytes]) -> None:
        super().__init__(static)
        self._static = static

    def __len__(self) -> int:
        return super().__len__() - len(self._static)

    def forget(self) -> None:
        self.clear()
        self.update(self._static)


_NUMBERS: Final = {
    name: number for number, (name, _) in reversed([*enumerate(HeaderTable.STATIC_TABLE, 1)])
}  # of the first field of the name
_fields: Final = CACHES.add(
    "encoded fields",
    _Forms({field: bytes((0x80 | number,)) for number, field in enumerate(HeaderTable.STATIC_TABLE, 1)}),
)
_names: Final = CACHES.add(
    "encoded names", _Forms({name: bytes(encode_integer(number, 4)) for name, number in _NUMBERS.items()})
)
_CHANGING: Final = frozenset({b"audit-id", b"content-length", b"date", b"warning"})
_dropped: Final = frozenset(name.encode() for name in CONNECTION_FIELDS)


def encode_answer(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the block of an answer's fields, which are checked and in lower case. Fields of an HTTP/1.1 connection
    are dropped."""
    parts = [_fields.get((b":status", b"%d" % status)) or _literal(b":status", b"%d" % status)]
    for field in headers:
        parts.append(_fields.get(field) or _encoded(field))
    return b"".join(parts)


def encode_fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the block of fields, with names in lower case and pseudo-fields first. Nothing enters a table."""
    return b"".join(_fields.get(field) or _literal(*field) for field in fields)


def _encoded(field: tuple[bytes, bytes]) -> bytes:
    name, value = field
    if name in _dropped:
        return b""
    encoded = _literal(name, value)
    if len(name) + len(value) <= COMMON_BYTES and len(_fields) < MAX_COMMON and name not in _CHANGING:
        _fields[field] = encoded
    return encoded


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a literal field that enters no table (RFC 7541 §6.2.2)."""
    start = _names.get(name)
    if start is None:
        start = b"\0%b%b" % (bytes(encode_integer(len(name), 7)), name)
        if len(name) <= COMMON_BYTES and len(_names) < MAX_COMMON:
            _names[name] = start
    size = len(value)
    return b"%b%b%b" % (start, bytes((size,)) if size < 0x7F else bytes(encode_integer(size, 7)), value)
