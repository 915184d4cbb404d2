"""The parts of a request's time: the seconds of each part of the server, for audit events, metrics and traces.

    with timed(MUTATING, "Call mutating webhook", lambda: {"webhook": name}):
        await ask()

The filters set CURRENT for each write, and for reads that are audited or traced. Elsewhere nothing is noted. A part of
a traced request is a span, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType
from typing import Final, Protocol

LOG: Final = "etcd"
SERIALIZATION: Final = "serialize-response-object"
TRANSFORM: Final = "transform-response-object"
CONVERSION: Final = "decode-response-object"
WRITE: Final = "response-write"
MUTATING: Final = "mutating-webhook"
VALIDATING: Final = "validating-webhook"
"""Names of parts, as kube-apiserver's audit annotations have them."""


class Span(Protocol):
    """A part of a traced request. Requests that are made until its end belong to it."""

    def end(self) -> None: ...


class Spans(Protocol):
    """The spans of a traced request."""

    def begin(self, name: str, attributes: Mapping[str, str]) -> Span: ...


class Parts:
    """The parts of one request. ``spans``: None if it is not traced.

    ``serialization``: the seconds of that part, for a read that is answered at once. ``added``: the others; None: there
    are none yet.
    """

    __slots__ = ("added", "serialization", "spans")

    def __init__(self) -> None:
        self.added: dict[str, float] | None = None
        self.serialization = 0.0
        self.spans: Spans | None = None

    def add(self, name: str, seconds: float, *, longest: bool = False) -> None:
        """Add seconds to a part. ``longest``: the parts of this name run side by side, and the longest one counts."""
        added = self.added
        if added is None:
            self.added = {name: seconds}
        elif name not in added:
            added[name] = seconds
        else:
            added[name] = max(added[name], seconds) if longest else added[name] + seconds

    @property
    def seconds(self) -> Mapping[str, float]:
        if self.serialization:
            self.add(SERIALIZATION, self.serialization)
            self.serialization = 0.0
        return self.added or {}

    @property
    def webhooks(self) -> float:
        """The seconds in which the request waited for admission webhooks."""
        found = self.added
        return 0.0 if found is None else found.get(MUTATING, 0.0) + found.get(VALIDATING, 0.0)


CURRENT: Final[ContextVar[Parts | None]] = ContextVar("request_parts", default=None)
"""The parts of the request that the present task serves."""


Attributes = Callable[[], Mapping[str, str]]


class timed:
    """Measure the block as a part of the current request, if that wants it.

    ``span``: the name of its span. ``attributes``: returns those of the span. ``longest``: see ``Parts.add``.
    """

    __slots__ = ("_attributes", "_begun", "_longest", "_name", "_parts", "_span", "_title")

    def __init__(self, name: str, span: str, attributes: Attributes | None = None, *, longest: bool = False) -> None:
        self._name = name
        self._title = span
        self._attributes = attributes
        self._longest = longest
        self._span: Span | None = None

    def __enter__(self) -> None:
        parts = self._parts = CURRENT.get()
        if parts is not None:
            self._begun = perf_counter()
            if parts.spans is not None:
                self._span = parts.spans.begin(self._title, self._attributes() if self._attributes else {})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._parts is not None:
            self._parts.add(self._name, perf_counter() - self._begun, longest=self._longest)
            if self._span is not None:
                self._span.end()
