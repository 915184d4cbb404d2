"""Status lines of HTTP/1.1 answers (RFC 9112 §4)."""

from __future__ import annotations

from http import HTTPStatus

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode("ascii")) for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
