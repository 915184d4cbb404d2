"""The heads of HTTP/1.1 that this server writes to others, and the check of every field that it sends.

The names of users, nodes and hosts come from clients. A line break in one would become a line of its own, such as
`X-Remote-Group: system:masters`. So all writers of fields check them here:

    requests to others        request_lines     proxying, aggregation, upgrades, webhooks, CONNECT
    answers of upgrades       answer_lines
    HTTP/2, gRPC              check_fields      their own encoding
    answers to clients        BROKEN            wire/exchange.py

A refused field fails its request, with the text of Go's net/http. Nothing is escaped or left out: a name that was
changed would be another user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, TypeAlias

# -- status lines ------------------------------------------------------------------------------------------------------
#
# Status lines of HTTP/1.1 answers (RFC 9112 §4).

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode("ascii")) for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


# -- heads -------------------------------------------------------------------------------------------------------------

Fields: TypeAlias = Iterable[tuple[str, str]]

BROKEN: Final = re.compile(r"[\0-\x08\n-\x1f\x7f]")
"""Characters that no value of a field may have (RFC 9110 §5.5): all controls but the tab."""
_CONTROLS: Final = bytes((*range(32), 127))
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(r"[!-~]+")
_VALUE: Final = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
"""Without blanks at its ends: a receiver drops them, and `admin ` would be `admin`."""


class BadField(ValueError):
    """A field cannot be sent. The text is that of Go's net/http."""


def check_fields(fields: Fields) -> None:
    """Raise BadField for a name or a value that cannot be sent. The characters of a value are its bytes (latin-1)."""
    for name, value in fields:
        if not _NAME.fullmatch(name.removeprefix(":")):
            raise BadField(f"net/http: invalid header field name {_quoted(name)}")
        if not _VALUE.fullmatch(value):
            raise BadField(f"net/http: invalid header field value for {_quoted(_canonical(name))}")


def is_target(text: str) -> bool:
    """Tell whether a text can stand in a request line."""
    return _TARGET.fullmatch(text) is not None


def request_lines(method: str, target: str, fields: Fields) -> bytes:
    """Return the head of a request. Raises BadField."""
    if not (_NAME.fullmatch(method) and is_target(target)):
        raise BadField("net/http: invalid method or request target")
    return _lines(f"{method} {target} HTTP/1.1\r\n".encode("ascii"), fields)


def answer_lines(status: int, fields: Fields, *, date: bytes = b"") -> bytes:
    """Return the head of an answer that begins another protocol. ``date``: the line of that field. Raises BadField."""
    return _lines(status_line(status) + date, fields)


def _lines(first: bytes, fields: Fields) -> bytes:
    listed = list(fields)
    try:
        lines = "".join([f"{name}: {value}\r\n" for name, value in listed]).encode("latin-1")
    except UnicodeEncodeError:
        check_fields(listed)
        raise
    if not _is_plain(lines, [name for name, _ in listed]):
        check_fields(listed)
    return b"%b%b\r\n" % (first, lines)


def _is_plain(lines: bytes, names: list[str]) -> bool:
    """Tell at a tenth of the cost of `check_fields` whether nothing is unusual: the only controls end the lines."""
    return (
        len(lines) - len(lines.translate(None, _CONTROLS)) == 2 * len(names)
        and b" \r\n" not in lines
        and b":  " not in lines
        and (joined := "".join(names).replace("-", "")).isalnum()
        and joined.isascii()
        and "" not in names
    )


def _canonical(name: str) -> str:
    """Return a name as Go writes it.

    >>> _canonical("x-remote-user")
    'X-Remote-User'
    """
    return "-".join(part.capitalize() for part in name.split("-"))


def _quoted(text: str) -> str:
    return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
