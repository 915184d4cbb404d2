"""The facts about one request for its audit events, collected while it is served.

It exists only for requests that the policy records, as ``Context.audit``. Filters and handlers add to it; every stage
makes an event from it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import Event, Line, is_quick, json_bytes, objects_of, shown_times
from kubechronicle.api.audit.matching import Decision
from kubechronicle.api.audit.payloads import Payload
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.user import User
from kubechronicle.http.messages import Headers

MAX_USER_AGENT: Final = 1024
SIZE: Final = 1536
"""Bytes of a record in memory, beside its objects and unusually long texts."""
USUAL: Final = 256
"""Characters of a URI that SIZE includes."""
CUT: Final = "...TRUNCATED"
METADATA, REQUEST, REQUEST_RESPONSE = 1, 2, 3
"""Ranks of levels, as in Decision."""
FULL_ANNOTATIONS: Final = "patch.webhook.admission.k8s.io/"
"""The prefix of annotations that hold contents. Events of level Metadata have none of them."""


class Template:
    """The parts of events that requests of one user for one kind of resource share.

    ``subject``: the fields from verb to userAgent. ``reference``: objectRef in pieces, of a request without a name:
    before the namespace, the namespace, after the name, the end. ``before_name`` and ``after_name``: all of that, of
    a request for which only its path is known.
    """

    __slots__ = ("after_name", "before_name", "decision", "reference", "subject", "user")

    def __init__(
        self, decision: Decision, user: User | None, info: RequestInfo, sources: list[str], agent: str
    ) -> None:
        self.decision = decision
        self.user = user
        fields: dict[str, Any] = {"verb": info.verb, "user": {} if user is None else user_info(user)}
        if sources:
            fields["sourceIPs"] = sources
        if agent:
            fields["userAgent"] = agent if len(agent) <= MAX_USER_AGENT else agent[:MAX_USER_AGENT] + CUT
        self.subject = _fields(fields)
        self.reference = _reference(info) if info.is_resource else None
        first, namespace, version, end = self.reference or (b"", b"", b"", b"")
        self.before_name = self.subject + first + namespace
        self.after_name = version + end


class RequestAudit:
    """The record of one request.

    ``late``: the annotations that only the last event has. ``size``: see Finished of api/audit/events.py.
    """

    # Most requests change none of these, so a record has only what differs. Each attribute costs twice: when it is
    # set, and as memory that the next request finds cold.
    late: dict[str, str] | None = None
    size = SIZE
    _annotations: dict[str, str] | None = None
    _more = b""
    _verdict: tuple[str, str] | None = None
    _request: Payload | None = None
    _changed: dict[str, str] | None = None
    _stage = policies.COMPLETE
    _status = b""
    _response: Payload | None = None

    def __init__(self, template: Template, audit_id: str, uri: str, info: RequestInfo, received: float) -> None:
        """``received``: seconds since the epoch."""
        self.decision = template.decision
        self.received = received
        self._template = template
        self._audit_id = audit_id
        self._uri = uri
        self._name = info.name
        self._stage_time = 0.0

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the events, apart from the verdict."""
        if self._annotations is None:
            self._annotations = {}
        return self._annotations

    # -- what filters and handlers add --------------------------------------------------------------------------------

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation; the first value of a key is kept."""
        self.annotations.setdefault(key, value)

    def annotate_late(self, key: str, value: str) -> None:
        """Add an annotation to the last event alone."""
        if self.late is None:
            self.late = {}
        self.late.setdefault(key, value)

    def decided(self, decision: str, reason: str) -> None:
        """Annotate the decision of the authorizers, and its reason."""
        self._verdict = (decision, reason)

    def impersonates(self, user: User, constraint: str = "") -> None:
        """Record the impersonated user. ``constraint``: the verb of the constrained mode (KEP-5284); "": legacy."""
        fields: dict[str, Any] = {"impersonatedUser": user_info(user)}
        if constraint:
            fields["authenticationMetadata"] = {"impersonationConstraint": constraint}
        self._more = _fields(fields)

    def note_object(self, obj: Object) -> None:
        """Record the decoded object of the request, in its version, before anything changes it. May run in a thread."""
        meta = obj.get("metadata")
        if isinstance(meta, dict):
            self._changed = {key: value for key in _FROM_OBJECT if (value := meta.get(key))}
        if self.decision.rank >= REQUEST:
            self._request = Payload(orjson.dumps(obj))

    def note_body(self, body: bytes, media_type: str) -> None:
        """Record the body of a patch as it was sent."""
        if self.decision.rank >= REQUEST:
            self._request = Payload(body, media_type, checked=False)

    # -- the last event, made when it is written (Finished of api/audit/events.py) -------------------------------------

    def complete(self, moment: float, status: bytes) -> None:
        """Note the facts of the last event of a request that was answered, if its answer is not shown."""
        self._stage_time, self._status = moment, status
        if self._request is not None or len(self._uri) > USUAL:
            self._measure()

    def finish(self, stage: str, moment: float, status: bytes, response: Payload | None) -> None:
        """Note the facts of the last event; for the parameters see ``event``. Nothing is noted later."""
        self._stage, self._stage_time, self._status, self._response = stage, moment, status, response
        self._measure()

    def _measure(self) -> None:
        size = SIZE + 2 * len(self._uri) + len(self._status)
        if self._request is not None:
            size += self._request.size
        self.size = size if self._response is None else size + self._response.size

    def made(self) -> Event | Line:
        """Return the last event."""
        if self._response is None and self._request is None and self._is_plain():
            return self._line(self._stage, self._stage_time, self._status)
        return self.event(self._stage, self._stage_time, status=self._status, response=self._response)

    def _is_plain(self) -> bool:
        """Return whether nothing is noted but the verdict, apart from objects."""
        return self._annotations is None and self._changed is None and not self._more

    # -- events -------------------------------------------------------------------------------------------------------

    def event(self, stage: str, moment: float, *, status: bytes = b"", response: Payload | None = None) -> Event | Line:
        """Return the event of a stage. ``moment``: its time in seconds since the epoch. ``status``: as JSON."""
        request, dumps = self._request, orjson.dumps
        if request is None and response is None and self._is_plain():
            return self._line(stage, moment, status)
        decision, template = self.decision, self._template
        head = (
            decision.opening,
            dumps(self._audit_id),
            STAGES[stage],
            dumps(self._uri),
            template.subject,
            self._more,
            b"" if template.reference is None else self._shown_reference(*template.reference),
            b',"responseStatus":' if status else b"",
            status,
        )
        times = shown_times(self.received, moment)
        tail = (times, self._shown_annotations() if self._annotations else _verdict(self._verdict))
        if request is None and response is None:
            return b"".join((*head, *tail))
        omit = decision.omit_managed_fields
        if not omit and is_quick(request) and is_quick(response):
            return b"".join((*head, *objects_of(request, response), *tail))
        return Event(b"".join(head), b"".join(tail)[:-1], request, response, omit_managed_fields=omit)

    def _line(self, stage: str, moment: float, status: bytes) -> Line:
        """Return the event of a request about which nothing is noted but the verdict: most reads."""
        template, name, verdict, dumps = self._template, self._name, self._verdict, orjson.dumps
        return b"".join(
            (
                self.decision.opening,
                dumps(self._audit_id),
                STAGES[stage],
                dumps(self._uri),
                template.before_name,
                b',"name":' + json_bytes(name) if name and template.reference else b"",
                template.after_name,
                b',"responseStatus":' if status else b"",
                status,
                shown_times(self.received, moment),
                _verdicts.get(verdict) or _verdict(verdict),
            )
        )

    def _shown_annotations(self) -> bytes:
        """Return the annotations and the end of the event."""
        found: Mapping[str, str] = self._annotations or {}
        if self._verdict is not None:
            found = {DECISION: self._verdict[0], REASON: self._verdict[1], **found}
        everything = self.decision.rank >= REQUEST
        shown = {key: found[key] for key in sorted(found) if everything or not key.startswith(FULL_ANNOTATIONS)}
        return b',"annotations":%b}\n' % json_bytes(shown)

    def _shown_reference(self, first: bytes, namespace: bytes, version: bytes, end: bytes) -> bytes:
        """Return the field objectRef: from the path, and what it lacks from the object."""
        name, changed = self._name, self._changed
        if changed is None:
            named = b',"name":' + json_bytes(name) if name else b""
            return b"".join((first, namespace, named, version, end))
        fields = {"name": name or changed.get("name"), "uid": changed.get("uid")}
        if not namespace:
            fields = {"namespace": changed.get("namespace"), **fields}
        own = _fields({key: value for key, value in fields.items() if value})
        revision = changed.get("resourceVersion")
        newest = b',"resourceVersion":' + json_bytes(revision) if revision else b""
        return b"".join((first, namespace, own, version, newest, end))


STAGES: Final = {stage: f',"stage":"{stage}","requestURI":'.encode() for stage in policies.STAGES}
DECISION: Final = "authorization.k8s.io/decision"
REASON: Final = "authorization.k8s.io/reason"
_FROM_OBJECT: Final = ("namespace", "name", "uid", "resourceVersion")
MOST_KEPT: Final = 1024
_verdicts: dict[tuple[str, str] | None, bytes] = {}
"""The ends of events by verdict. Names of bindings are among the reasons, so all are forgotten when there are more."""


def _verdict(verdict: tuple[str, str] | None) -> bytes:
    """Return the annotations of the verdict and the end of an event."""
    if verdict is None:
        return b"}\n"
    known = _verdicts.get(verdict)
    if known is None:
        if len(_verdicts) >= MOST_KEPT:
            _verdicts.clear()
        shown = json_bytes({DECISION: verdict[0], REASON: verdict[1]})
        known = _verdicts[verdict] = b',"annotations":%b}\n' % shown
    return known


def _fields(values: Mapping[str, Any]) -> bytes:
    """Return fields as they continue an object: ``,"a":1``."""
    return b"," + json_bytes(values)[1:-1] if values else b""


def _reference(info: RequestInfo) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the pieces of objectRef; see Template."""
    version = {"apiGroup": info.group, "apiVersion": info.version} if info.group else {"apiVersion": info.version}
    return (
        b',"objectRef":{"resource":' + json_bytes(info.resource),
        _fields({"namespace": info.namespace} if info.namespace else {}),
        _fields(version),
        _fields({"subresource": info.subresource} if info.subresource else {}) + b"}",
    )


def user_info(user: User) -> dict[str, Any]:
    """Return a user as authentication.k8s.io/v1 UserInfo."""
    info: dict[str, Any] = {"username": user.name} if user.name else {}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(user.extra[key]) for key in sorted(user.extra)}
    return info


CODES: Final[dict[int, bytes]] = {}
"""Results of ``code_status``."""


def code_status(code: int) -> bytes:
    """Return the status of an event for an answer that is no Status object."""
    known = CODES.get(code)
    if known is None:
        known = CODES[code] = b'{"metadata":{},"code":%d}' % code
    return known


def error_status(error: StatusError) -> bytes:
    """Return the status of an event for an answer that is an error."""
    return shown_status(error.body(), error.code)


def shown_status(status: Mapping[str, Any], code: int) -> bytes:
    """Return the parts of a Status object that an event shows. ``code``: the answer's."""
    shown = {field: status[field] for field in ("status", "message", "reason", "details") if status.get(field)}
    if status.get("details") is not None:
        shown["details"] = status["details"]
    return json_bytes({"metadata": {}, **shown, "code": code})


def error_payload(record: RequestAudit, error: StatusError) -> Payload | None:
    """Return the object of an answer that is an error, if the level shows it."""
    return Payload(orjson.dumps(error.body())) if record.decision.rank >= REQUEST_RESPONSE else None


def response_payload(body: Any, headers: Any) -> Payload | None:
    """Return the object of an answer; None if its body is no object. ``headers``: (name, value) pairs."""
    media_type, gzipped = "", False
    for name, value in headers:
        if name == "content-type":
            media_type = value.partition(";")[0]
        elif name == "content-encoding":
            gzipped = value == "gzip"
    return Payload(body, media_type, gzipped) if media_type in negotiate.MEDIA_TYPES else None


# -- addresses --------------------------------------------------------------------------------------------------------


def source_addresses(headers: Headers, peer: str) -> list[str]:
    """Return the addresses of the client and the proxies, as far as they say so; the peer's, which is sure, is last.

    X-Forwarded-For, X-Real-Ip, the peer; without repetitions (SourceIPs of k8s.io/apimachinery ``pkg/util/net``).
    """
    forwarded, real = headers.get("x-forwarded-for"), headers.get("x-real-ip")
    if not forwarded and not real:
        return [peer] if peer else []
    found = [address for part in forwarded.split(",") if (address := _address(part))]
    address = _address(real)
    if address and address not in found:
        found.append(address)
    own = _address(peer)
    if own and (not found or found[-1] != own):
        found.append(own)
    return found


def _address(text: str) -> str:
    """Return an IP address in its usual form, "" for another text. Numbers may begin with zeros."""
    text = text.strip()
    if "." in text and ":" not in text:
        text = ".".join(part.lstrip("0") or "0" if part.isdecimal() else part for part in text.split("."))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
