"""Hypercorn's settings, as this server has them, and the date of answers.

No logs of Hypercorn's own, no server field; the date is written once a second.
"""

from __future__ import annotations

import time
from wsgiref.handlers import format_date_time

from hypercorn.config import Config

from kubechronicle.http.serve_config import Limits


class WireConfig(Config):
    include_server_header = False
    accesslog = None
    errorlog = None

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.h11_max_incomplete_size = limits.header_bytes
        self.websocket_max_message_size = limits.websocket_message
        self._second = -1
        self._fields: list[tuple[bytes, bytes]] = []
        self._line = b""

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """What every answer has."""
        self.date_line()
        return self._fields

    def date_line(self) -> bytes:
        """The same, as a line of HTTP/1.1."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            date = format_date_time(second).encode("ascii")
            self._fields = [(b"date", date)]
            self._line = b"date: %b\r\n" % date
        return self._line
