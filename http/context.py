"""The context of a request: the filters fill it in, later filters and the handlers read it."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, Protocol, cast
from urllib.parse import unquote_plus

import msgspec

from kubechronicle.actors.large_work import LargeWork, Turn
from kubechronicle.api.codecs.negotiate import WITHOUT_CBOR, Formats
from kubechronicle.api.errors import status
from kubechronicle.api.history import reasons
from kubechronicle.api.meta.request_info import Query, RequestInfo
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Moment, Who
from kubechronicle.eventlog.request_parts import Parts
from kubechronicle.http.authentication.user import ANONYMOUS_USER, User
from kubechronicle.http.authorization.decision import Verdict
from kubechronicle.http.headers import utf8
from kubechronicle.http.messages import Request, Response

# Bounds of fields that the log keeps for years and that clients control.
MAX_USER_AGENT = 512
MAX_REQUEST_URI = 2048
MAX_AUDIT_ID = 64
REASON_ANNOTATION: Final = "history.kubechronicle.dev/reason"


class AuditRecord(Protocol):
    """The facts that filters and handlers add to the audit event of a request (http/audit/record.py)."""

    verdict: Verdict | None

    @property
    def annotations(self) -> dict[str, str]: ...

    def annotate(self, key: str, value: str) -> None: ...

    def annotate_late(self, key: str, value: str) -> None: ...

    def impersonates(self, user: User, constraint: str = "") -> None: ...

    def note_object(self, obj: Object) -> None: ...

    def note_body(self, body: bytes, media_type: str) -> None: ...

    def note_change(self, resource: str, before: Entry | None, after: Entry | Object, effect: str) -> None: ...


class Seats(Protocol):
    """The seats of a watch in priority and fairness (http/flow_control/filter.py). ``awaited``: a stream ends them.

    ``turn``: waited for before each part of many initial events, so that such watches share the event loop with others.
    """

    awaited: bool

    async def turn(self) -> None: ...

    def end(self) -> None: ...


class Context(msgspec.Struct, kw_only=True, eq=False):
    """One per request, attached to it (``Request.attached``).

    ``info``: the verb and resource, or the path, from the request line.
    ``query``: the query parameters.
    ``audit_id``: the id of the request.
    ``deadline``: its deadline in trio's time.
    ``received``: the time of its arrival, in seconds since the epoch.
    ``user``: the user whose rights count.
    ``impersonator``: the authenticated user, if ``user`` is impersonated; else "".
    ``long_running``: True for watches and for streams such as exec.
    ``warnings``: become Warning fields of the answer (RFC 7234 §5.5, code 299).
    ``reason``: the reason in the URL (api/history/reasons.py); "" for none.
    ``moment``: the moment of history as in the URL; "" for ordinary requests.
    ``at``: the resolved moment; None for ordinary requests.
    ``branch``: the name of the branch as in the URL; "" for requests of the cluster itself.
    ``formats``: the media types that the server offers.
    ``large``: the large work of the server (actors/large_work.py); the handlers of resources set it.
    ``flow_headers``: the fields of the answer that name the FlowSchema and the priority level.
    ``waited``: seconds that the request has waited for its turn.
    ``authenticated``, ``impersonated``, ``authorized``: the seconds that these took.
    ``parts``: the other parts of the request's time; None if nobody asks for them.
    ``terminated``: True if the server ended it in self-defence.
    ``seats``: of a watch: ends when its initial events are sent; the handler of watches takes it.
    ``audit``: the audit record of the request; None if it has none.
    ``credential_notes``: collects annotations about the credential for the audit event; None while audit is off.
    ``unchanged``: the request is a write that left its object as it was.
    ``issued``: collects facts about an issued token; None while nobody asks for them.
    """

    info: RequestInfo
    query: Query
    audit_id: str
    deadline: float = math.inf
    received: float
    user: User = ANONYMOUS_USER
    impersonator: str = ""
    long_running: bool = False
    warnings: list[str] = []
    reason: str = ""
    moment: str = ""
    at: Moment | None = None
    branch: str = ""
    formats: Formats = WITHOUT_CBOR
    large: LargeWork = cast(LargeWork, None)
    _turn: Turn | None = None
    flow_headers: tuple[tuple[str, str], ...] = ()
    waited: float = 0.0
    authenticated: float = 0.0
    impersonated: float = 0.0
    authorized: float = 0.0
    parts: Parts | None = None
    terminated: bool = False
    seats: Seats | None = None
    audit: AuditRecord | None = None
    credential_notes: dict[str, str] | None = None
    unchanged: bool = False
    issued: dict[str, object] | None = None

    @property
    def turn(self) -> Turn:
        """The request's share in the large work. Most requests need none, so it is made when it is asked for."""
        if self._turn is None:
            self._turn = self.large.turn(self.user.name)
        return self._turn

    def end_turn(self) -> None:
        """Give back what the request holds of the large work."""
        if self._turn is not None:
            self._turn.end()

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the audit event of the request, if it has one. The first value of a key is kept."""
        if self.audit is not None:
            self.audit.annotate(key, value)

    def now(self) -> datetime:
        """Return the time from which the answer computes ages."""
        return datetime.now(UTC) if self.at is None else self.at.time


Step = Callable[[Request, Context], Awaitable[Response]]
"""A filter that has the context of the request, or the handler behind all filters."""


# Words in the names of parameters that hold a credential. No parameter of the API has such a name.
_SECRET: Final = re.compile(r"token|secret|password|passwd|authorization|credential|api_?key|bearer", re.IGNORECASE)
REDACTED: Final = "REDACTED"


def shown_uri(request: Request) -> str:
    """Return the request's target for logs and the database, with credentials in the query redacted."""
    query = request.query_string
    if not query:
        return request.raw_path
    pairs = [pair.partition("=") for pair in query.split("&")]
    if any(value and _SECRET.search(unquote_plus(name)) for name, _, value in pairs):
        kept = [(name, REDACTED if value and _SECRET.search(unquote_plus(name)) else value) for name, _, value in pairs]
        query = "&".join(f"{name}={value}" if value else name for name, value in kept)
    return f"{request.raw_path}?{query}"


def author_of(request: Request, context: Context, *, field_manager: str = "") -> Who:
    """Return the author of the request's changes, for the ``who`` columns of the log. StatusError 400: bad reason."""
    user = context.user
    return Who(
        user=user.name,
        groups=user.groups,
        uid=user.uid,
        extra=user.extra,
        impersonator=context.impersonator,
        verb=context.info.verb,
        request_uri=shown_uri(request)[:MAX_REQUEST_URI],
        user_agent=request.headers.first.get("user-agent", "")[:MAX_USER_AGENT],
        source_address=request.client[0],
        field_manager=field_manager,
        audit_id=context.audit_id[:MAX_AUDIT_ID],
        reason=_reason(request, context),
        cause=_cause(request),
    )


def _cause(request: Request) -> int:
    """Return the revision that the client gives as the cause of its change; 0: none. StatusError 400."""
    text = request.headers.first.get(reasons.CAUSE_HEADER, "")
    if not text:
        return 0
    try:
        return reasons.parse_cause(text)
    except ValueError as error:
        raise status.bad_request(f"the header {reasons.CAUSE_HEADER.title()} {error}") from None


def _reason(request: Request, context: Context) -> str:
    """Return the reason of the request, the header's before that of the URL, and note it for audit. StatusError 400."""
    given = request.headers.first.get(reasons.HEADER, "")
    text = utf8(given) if given else context.reason
    if not text:
        return ""
    try:
        reason = reasons.parse_reason(text)
    except ValueError as error:
        where = f"the header {reasons.HEADER.title()}" if given else "the reason in the URL"
        raise status.bad_request(f"{where} {error}") from None
    context.annotate(REASON_ANNOTATION, reason)
    return reason
