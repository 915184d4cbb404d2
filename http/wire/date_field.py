"""The date field of answers, formatted once a second."""

from __future__ import annotations

import time
from wsgiref.handlers import format_date_time


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
