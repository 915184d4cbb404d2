"""The one reader of answers in HTTP/1.1 (RFC 9112): of webhooks and issuers, of kubelets and aggregated servers, and of
the server that a command asks. It does no I/O.

    AnswerReader("GET")    feed(bytes) … until ``status`` is set: the head is there
                           take() gives the parts of the body, feed() more, until ``complete``
                           end() at the end of the connection, which may end the body

Invariant: outside of its body, an answer has at most ``most_head`` bytes in a row: in its head, between two parts of
the body, and after it. Who takes the body bounds it.

llhttp parses (httptools), which reads requests, too. h11 was weighed: it would do the same in Python, for 25 µs of CPU
an answer of a webhook instead of 2.
"""

from __future__ import annotations

from typing import Final

import httptools

MAX_HEADERS: Final = 64 * 1024
"""Bytes of the head of an answer to this server, and of the framing of its body."""
BODILESS_METHODS: Final = frozenset({"HEAD", "CONNECT"})
"""Methods whose answers have no body, also if their head announces one (RFC 9112 §6.3)."""
BODILESS: Final = frozenset({204, 304})
SWITCHING_PROTOCOLS: Final = 101


class AnswerError(Exception):
    """An answer that cannot be read."""


class AnswerEnded(AnswerError):
    """The connection ended before the answer did. ``begun``: something of it had arrived."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__("unexpected EOF" if begun else "EOF")
        self.begun = begun


class AnswerReader:
    """One answer to a request by ``method``. Interim answers (1xx) before it are dropped (RFC 9110 §15.2).

    ``status``: 0 until its head is complete. ``fields``: with names in lower case, as they came; trailers are dropped.
    ``size``: bytes of its body so far.
    ``until_end``: the end of the connection ends its body.
    ``rest``: the bytes after an answer 101, of another protocol; None: there is no such answer.
    """

    def __init__(self, method: str, *, most_head: int = MAX_HEADERS) -> None:
        self._bodiless = method in BODILESS_METHODS
        self._most_head = most_head
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._framing = 0
        self._persistent = self._surplus = self._is_begun = False
        self._problem = ""
        self.fields: list[tuple[str, str]] = []
        self.status = self.size = 0
        self.complete = self.until_end = False
        self.rest: bytes | None = None

    # -- input --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes of the connection. AnswerError."""
        if self.complete or self._parser is None:
            self._surplus = True
            return
        size, self._is_begun = self.size, True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
            self.complete = self._surplus = True
        except httptools.HttpParserError as error:
            if not self.complete:
                raise AnswerError(f"malformed HTTP response: {error}") from None
            self._surplus = True
        # The parser collects a name or a value that has no end: so bytes outside the body are counted.
        self._framing = self._framing + len(data) if self.size == size else 0
        if self.complete:
            self.release()
        elif self._framing > self._most_head:
            raise AnswerError("the header of the answer is too long")
        if self.status == SWITCHING_PROTOCOLS and self.rest is None:
            self._problem = "malformed HTTP response: 101 without the field Upgrade"
        if self._problem:
            raise AnswerError(self._problem)

    def end(self) -> None:
        """Take the end of the connection. AnswerEnded: it cuts the answer."""
        if not self.complete and not self.until_end:
            raise AnswerEnded(begun=self._is_begun)
        self.complete = self._surplus = True

    def release(self) -> None:
        """Let go of the parser, which refers to this object: so the body is freed at once, not by the collector."""
        self._parser = None

    # -- output -------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> str:
        """Return the values of a field (its name in lower case), joined as one list; "" if there is none."""
        return ", ".join(value for key, value in self.fields if key == name)

    def headers(self) -> dict[str, str]:
        """Return the fields by name; values of equal names are joined (RFC 9110 §5.3)."""
        found = dict(self.fields)
        return found if len(found) == len(self.fields) else {name: self.get(name) for name in found}

    def take(self) -> bytes:
        """Return what has come of the body since the last call."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def kept(self) -> bool:
        """True if another request may follow on the connection (RFC 9112 §9.3)."""
        return self.complete and self._persistent and not self._surplus and not self.until_end

    # -- called by the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._surplus = self.status > 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self.fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self.status:
            return
        if status < 200 and status != SWITCHING_PROTOCOLS:
            self.fields.clear()
            return
        self.status = status
        names = {name for name, _ in self.fields}
        options = {each.strip().lower() for each in self.get("connection").split(",")} if "connection" in names else ()
        self._persistent = "close" not in options and (
            self._parser.get_http_version() == "1.1" or "keep-alive" in options
        )
        encoding = self.get("transfer-encoding")
        if encoding and encoding.lower() != "chunked":  # no other was asked for (RFC 9112 §7.4)
            self._problem = f'unsupported transfer encoding: "{encoding}"'
        if self._bodiless or status in BODILESS:
            self.complete = True
        else:
            self.until_end = not encoding and "content-length" not in names

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self._surplus = True
        else:
            self._parts.append(data)
            self.size += len(data)

    def on_message_complete(self) -> None:
        self.complete = self.status > 0
