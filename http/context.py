"""What the filters learn about a request on its way in, for the filters and handlers further in. One per request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote_plus

from kubechronicle.eventlog.records import Moment, Who
from kubechronicle.http.authentication.user import ANONYMOUS_USER, User
from kubechronicle.http.messages import Request
from kubechronicle.http.request_info import Query, RequestInfo

# Longest User-Agent kept with a change: the field is the client's to choose, the log keeps it for years.
MAX_USER_AGENT = 512
MAX_REQUEST_URI = 2048
# Bytes of randomness asked for at once; an audit id takes 16.
RANDOM_BYTES = 4096


def audit_ids() -> Iterator[str]:
    """Random UUIDs (RFC 9562 §5.4), in a tenth of the time of the library's, most of it a system call each."""
    variants = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
    while True:
        digits = os.urandom(RANDOM_BYTES).hex()
        for at in range(0, len(digits), 32):
            d = digits[at : at + 32]
            yield f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{variants[d[16]]}{d[17:20]}-{d[20:]}"


class Context:
    """Filled from the outside in: ``info`` and ``query`` first, then ``user``, whom the request counts for, and
    ``impersonator``, who made it in that name ("": the user itself). ``deadline`` in trio time;
    ``received`` in seconds since the epoch. ``warnings`` become Warning headers of the answer (RFC 7234 §5.5, 299).
    ``moment``: of history, as its URL names it, and ``at``: what it is; "" and None for ordinary requests."""

    __slots__ = (
        "at",
        "audit_id",
        "deadline",
        "impersonator",
        "info",
        "long_running",
        "moment",
        "query",
        "received",
        "user",
        "warnings",
    )

    def __init__(self, *, info: RequestInfo, query: Query, audit_id: str, deadline: float, received: float) -> None:
        self.info = info
        self.query = query
        self.audit_id = audit_id
        self.deadline = deadline
        self.received = received
        self.user: User = ANONYMOUS_USER
        self.impersonator = ""
        self.long_running = False
        self.warnings: list[str] = []
        self.moment = ""
        self.at: Moment | None = None

    def now(self) -> datetime:
        """When it is for this request: ages are told as of then."""
        return datetime.now(UTC) if self.at is None else self.at.time


# Words in the name of a parameter whose value is a credential; no parameter of the API has one of them.
_SECRET: Final = re.compile(r"token|secret|password|passwd|authorization|credential|api_?key|bearer", re.IGNORECASE)
REDACTED: Final = "REDACTED"


def shown_uri(request: Request) -> str:
    """The request's target as it may be kept: credentials that a client put there, where they do not belong, left
    out."""
    query = request.query_string
    if not query:
        return request.raw_path
    pairs = [pair.partition("=") for pair in query.split("&")]
    if any(value and _SECRET.search(unquote_plus(name)) for name, _, value in pairs):
        kept = [(name, REDACTED if value and _SECRET.search(unquote_plus(name)) else value) for name, _, value in pairs]
        query = "&".join(f"{name}={value}" if value else name for name, value in kept)
    return f"{request.raw_path}?{query}"


def who(request: Request, context: Context, *, field_manager: str = "") -> Who:
    """The who-columns of a change this request makes."""
    user = context.user
    return Who(
        user=user.name,
        groups=user.groups,
        uid=user.uid,
        extra=user.extra,
        impersonator=context.impersonator,
        verb=context.info.verb,
        request_uri=shown_uri(request)[:MAX_REQUEST_URI],
        user_agent=request.headers.get("user-agent")[:MAX_USER_AGENT],
        source_address=request.client[0],
        field_manager=field_manager,
        audit_id=context.audit_id,
    )
