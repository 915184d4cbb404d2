"""The checks of a request's head that httptools leaves to servers (RFC 9112), without I/O."""

from __future__ import annotations

from kubechronicle.http.messages import Headers


class RequestRejected(Exception):
    """Raised in a parser's callback; httptools wraps it. ``status``: of the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def check_head(method: bytes, headers: Headers, version: str) -> tuple[bool, bool]:
    """Return whether the connection goes on after the answer, and whether the client waits for 100 Continue. Raises
    RequestRejected."""
    fields = headers.first
    keep_alive, expects_continue = version == "1.1", False
    if keep_alive and "connection" in fields:
        keep_alive = not any("close" in value.lower() for value in headers.get_all("connection"))
    if "expect" in fields:
        expects_continue = headers.get_all("expect")[-1].lower() == "100-continue" and version == "1.1"
    if "transfer-encoding" in fields:
        if any(value.lower() != "chunked" for value in headers.get_all("transfer-encoding")):
            raise RequestRejected(501)
        if version != "1.1":
            raise RequestRejected(400)  # RFC 9112 §6.1: a sign of request smuggling
    if version not in ("1.1", "1.0"):
        raise RequestRejected(505 if version > "1.1" else 400)
    hosts = len(headers.get_all("host"))
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise RequestRejected(400)
    if method == b"CONNECT":
        raise RequestRejected(405)
    return keep_alive, expects_continue
