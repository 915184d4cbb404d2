"""What the filters learn about a request on its way in, for the filters and handlers further in. One per request."""

from __future__ import annotations

from datetime import UTC, datetime

from kubechronicle.eventlog.records import Moment, Who
from kubechronicle.http.authentication.user import ANONYMOUS_USER, User
from kubechronicle.http.messages import Request
from kubechronicle.http.request_info import Query, RequestInfo

# Longest User-Agent kept with a change: the field is the client's to choose, the log keeps it for years.
MAX_USER_AGENT = 512
MAX_REQUEST_URI = 2048


class Context:
    """Filled from the outside in: ``info`` and ``query`` first, then ``user``, whom the request counts for, and
    ``impersonator``, who made it in that name ("": the user itself). ``deadline`` in trio time;
    ``received`` in seconds since the epoch. ``warnings`` become Warning headers of the answer (RFC 7234 §5.5, 299).
    ``moment``: of history, as its URL names it, and ``at``: what it is; "" and None for ordinary requests."""

    __slots__ = (
        "at", "audit_id", "deadline", "impersonator", "info", "long_running", "moment", "query", "received", "user",
        "warnings",
    )  # fmt: skip

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


def who(request: Request, context: Context, *, field_manager: str = "") -> Who:
    """The who-columns of a change this request makes."""
    user = context.user
    uri = f"{request.raw_path}?{request.query_string}" if request.query_string else request.raw_path
    return Who(
        user=user.name,
        groups=user.groups,
        uid=user.uid,
        extra=user.extra,
        impersonator=context.impersonator,
        verb=context.info.verb,
        request_uri=uri[:MAX_REQUEST_URI],
        user_agent=request.headers.get("user-agent")[:MAX_USER_AGENT],
        source_address=request.client[0],
        field_manager=field_manager,
        audit_id=context.audit_id,
    )
