"""Header fields of a request, and their text."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Final, TypeAlias
from wsgiref.handlers import format_date_time

# -- date field --------------------------------------------------------------------------------------------------------
#
# The date field of answers, formatted once a second.


class DateField:
    def __init__(self) -> None:
        self._second = -1
        self._fields: list[tuple[bytes, bytes]] = []
        self._line = b""

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Return the field in a list, which the caller must not change."""
        self.line()
        return self._fields

    def line(self) -> bytes:
        """Return the field as a line of HTTP/1.1."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            date = format_date_time(second).encode("ascii")
            self._fields = [(b"date", date)]
            self._line = b"date: %b\r\n" % date
        return self._line


# -- headers -----------------------------------------------------------------------------------------------------------

HeaderList: TypeAlias = Iterable[tuple[str, str]]


def utf8(value: str) -> str:
    """Decode a field's value, which is bytes on the wire, as UTF-8. Invalid bytes become U+FFFD, so that the result
    never equals a valid name.

    >>> utf8("JosÃ©"), utf8("Jos\\xe9") == "Jos\\ufffd"
    ('José', True)
    """
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:  # text already: the request has not come over a wire
        return value


class Headers:
    """Header fields: names in lower case, values as latin-1 text, repeated fields kept in order.

    >>> headers = Headers([("Accept", "a"), ("accept", "b")])
    >>> headers["accept"], headers.get_all("Accept"), headers.get("missing")
    ('a', ['a', 'b'], '')

    ``first``: the first value of each field, by its name in lower case. Only this class changes it. Code that every
    request passes reads it directly: ``headers.first.get("accept", "")`` takes a third of ``headers.get("accept")``.
    """

    __slots__ = ("_items", "_names", "first")  # a removed field is missing in `first` only

    def __init__(self, items: HeaderList = ()) -> None:
        self._items = [(name.lower(), value) for name, value in items]
        self._index()

    @classmethod
    def from_raw(cls, raw: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Make headers from received fields, whose names are in lower case."""
        headers = cls.__new__(cls)
        headers._items = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        headers._index()
        return headers

    def _index(self) -> None:
        self.first = dict(self._items[::-1])  # of two of a name the first stays
        self._names = "\n" + "\n".join(self.first)  # of one search for a prefix; removed ones stay

    def copy(self) -> Headers:
        """Return a copy; removals from it do not change this."""
        headers = Headers.__new__(Headers)
        headers._items, headers._names, headers.first = self._items, self._names, self.first.copy()
        return headers

    def get(self, name: str, default: str = "") -> str:
        """Return the field's first value (as Go's Header.Get), or `default`."""
        return self.first.get(name.lower(), default)

    def get_all(self, name: str) -> list[str]:
        name = name.lower()
        if name not in self.first:
            return []
        if len(self.first) == len(self._items):
            return [self.first[name]]
        return [value for key, value in self._items if key == name]

    def has_prefix(self, prefix: str) -> bool:
        """Tell whether any field's name begins with the prefix (in lower case)."""
        return "\n" + prefix in self._names and any(name.startswith(prefix) for name in self.first)

    def __getitem__(self, name: str) -> str:
        return self.first[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self.first

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield all (name, value) pairs in the order received."""
        return (item for item in self._items if item[0] in self.first)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Headers({sorted(self.first)})"  # only the names: values include credentials

    def remove(self, names: frozenset[str], prefixes: tuple[str, ...] = ()) -> None:
        """Remove these fields and those with these prefixes (in lower case), such as checked credentials."""
        first = self.first
        for name in first.keys() & names:
            del first[name]
        for prefix in prefixes:
            if "\n" + prefix in self._names:
                for name in [name for name in first if name.startswith(prefix)]:
                    del first[name]

    def replace(self, name: str, value: str) -> None:
        """Set a field (its name in lower case) to one value, instead of those received."""
        self._items = [item for item in self._items if item[0] != name] + [(name, value)]
        self.first[name] = value
        self._names += "\n" + name


# -- traceparent -------------------------------------------------------------------------------------------------------
#
# The trace that a request belongs to, for the requests that it causes (W3C Trace Context).


TRACEPARENT: Final = "traceparent"
CURRENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The header's value for requests that the present task makes to others; "": the request is not traced."""


# -- loops -------------------------------------------------------------------------------------------------------------
#
# Requests that come back: sent to a kubelet on behalf of a client, received by a listener of the same cluster.
#
# The client certificate for kubelets is a user with all rights. The address of a Node can lead through a load balancer
# or a Service to this server, or to another one of its cluster: no address shows that. So each request with that
# certificate names it in a field (RFC 9110 §7.6.3), and no listener takes the certificate from such a request:
#
#     to a kubelet          certificate C     via: 1.1 kubechronicle-DIGEST-OF-C
#     to an API server      certificate C     the same field: the request has come back, and is not authenticated
#
# The client cannot remove the field: it is added to the client's own fields, inside a connection of TLS from server to
# server. A kubelet ignores it.


VIA: Final = "via"
_NAME: Final = "kubechronicle-"


def via_field(certificate: bytes) -> tuple[str, str]:
    """Return the field for requests with a client certificate (DER)."""
    return VIA, f"1.1 {_NAME}{hashlib.sha256(certificate).hexdigest()[:32]}"


def has_come_back(headers: Headers, certificate: bytes) -> bool:
    """Tell whether a request with a client certificate (DER) was sent by a server on behalf of a client."""
    fields = headers.get_all(VIA)
    return any(_NAME in each for each in fields) and any(via_field(certificate)[1] in each for each in fields)
