"""The facts about one request for its audit events, collected while it is served.

It exists only for requests that the policy records, as ``Context.audit``. Filters and handlers add to it; every stage
makes an event from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from orjson import dumps

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import (
    THOUSAND,
    AuditEvent,
    Line,
    Payload,
    is_quick,
    json_bytes,
    objects_of,
    second_text,
    shown_times,
)
from kubechronicle.api.audit.matching import AuditDecision as AuditDecision
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.caches import kept
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.request_parts import Parts
from kubechronicle.http.audit.changes import CHANGES, EFFECT, NO_OP, REVISION, AuditedChange
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import Decision, Verdict

ALLOW: Final = Decision.ALLOW
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


class EventTemplate:
    """The parts of events that requests of one user for one kind of resource share.

    ``subject``: the fields from verb to userAgent. ``reference``: objectRef in pieces, of a request without a name:
    before the namespace, the namespace, after the name, the end. ``before_name``, ``named`` and ``after_name``: all of
    that, of a request for which only its path is known; ``named`` goes before its name. ``tells_changes``: events say
    what writes changed.
    """

    __slots__ = ("after_name", "before_name", "decision", "named", "reference", "subject", "tells_changes", "user")

    def __init__(
        self,
        decision: AuditDecision,
        user: User | None,
        info: RequestInfo,
        sources: list[str],
        agent: str,
        *,
        tells_changes: bool = False,
    ) -> None:
        self.decision = decision
        self.tells_changes = tells_changes
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
        self.named = self.before_name + b',"name":'
        self.after_name = version + end


class RequestAudit(Parts):
    """The record of one request. A read notes the parts of its time here, too: it needs no other object.

    ``verdict``: of the authorizers, None before it. ``late``: the annotations that only the last event has.
    ``moment`` and ``status``: of the last event. ``size``: see Finished of api/audit/events.py.
    """

    # Slots for the facts of each record: they take the least time. The rest has these defaults in most records.
    __slots__ = (
        "__dict__",
        "_audit_id",
        "_name",
        "_template",
        "_uri",
        "decision",
        "moment",
        "received",
        "status",
        "verdict",
    )
    late: dict[str, str] | None = None
    size = SIZE
    _is_plain = True  # nothing is noted but the verdict
    _annotations: dict[str, str] | None = None
    _more = b""
    _changed: dict[str, str] | None = None
    _change: AuditedChange | None = None
    _request: Payload | None = None
    _response: Payload | None = None
    _stage = policies.COMPLETE

    def __init__(self, template: EventTemplate, audit_id: str, uri: str, name: str, received: float) -> None:
        """``name``: of the object in the URI. ``received``: seconds since the epoch."""
        self.added = self.spans = None  # as Parts does, without a call
        self.serialization = 0.0
        self.decision = template.decision
        self.received = received
        self.verdict: Verdict | None = None
        self._template = template
        self._audit_id = audit_id
        self._uri = uri
        self._name = name

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the events, apart from the verdict."""
        if self._annotations is None:
            self._annotations, self._is_plain = {}, False
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

    def impersonates(self, user: User, constraint: str = "") -> None:
        """Record the impersonated user. ``constraint``: the verb of the constrained mode (KEP-5284); "": legacy."""
        fields: dict[str, Any] = {"impersonatedUser": user_info(user)}
        if constraint:
            fields["authenticationMetadata"] = {"impersonationConstraint": constraint}
        self._more, self._is_plain = _fields(fields), False

    def note_object(self, obj: Object) -> None:
        """Record the decoded object of the request, in its version, before anything changes it. May run in a thread."""
        meta = obj.get("metadata")
        if isinstance(meta, dict):
            self._changed, self._is_plain = {key: value for key in _FROM_OBJECT if (value := meta.get(key))}, False
        if self.decision.rank >= REQUEST:
            self._show_request(Payload(orjson.dumps(obj)))

    def note_body(self, body: bytes, media_type: str) -> None:
        """Record the body of a patch as it was sent."""
        if self.decision.rank >= REQUEST:
            self._show_request(Payload(body, media_type, checked=False))

    def note_change(self, resource: str, before: Entry | None, after: Entry | Object, effect: str) -> None:
        """Record what a write changed, and whether that was stored (changes.py). ``effect``: "" if it was."""
        if not self._template.tells_changes:
            return
        if effect:
            self.annotate_late(EFFECT, effect)
        elif isinstance(after, Entry):
            self.annotate_late(REVISION, str(after.revision))
        if before is not None and effect != NO_OP and self.decision.rank >= REQUEST:
            self._change, self._is_plain = AuditedChange(resource, before, after), False
            self.size += self._change.size

    def _show_request(self, payload: Payload) -> None:
        if self._request is not None:  # of an attempt before
            self.size -= self._request.size
        self.size += payload.size
        self._request, self._is_plain = payload, False

    # -- the last event, made when it is written (Finished of api/audit/events.py) -------------------------------------

    def finish(self, stage: str, moment: float, status: bytes, response: Payload | None) -> None:
        """Note the facts of the last event; for the parameters see ``event``. Nothing is noted later.

        Of a usual answer, whose object is not shown, the caller sets ``moment`` and ``status`` alone.
        """
        self._stage, self.moment, self.status = stage, moment, status
        self.size += len(status)
        if response is not None:
            self.size += response.size
            self._response, self._is_plain = response, False

    def made(self) -> AuditEvent | Line:
        """Return the last event."""
        if self._is_plain:
            return self._line(self._stage, self.moment, self.status)
        return self.event(self._stage, self.moment, status=self.status, response=self._response)

    # -- events -------------------------------------------------------------------------------------------------------

    def event(
        self, stage: str, moment: float, *, status: bytes = b"", response: Payload | None = None
    ) -> AuditEvent | Line:
        """Return the event of a stage. ``moment``: its time in seconds since the epoch. ``status``: as JSON."""
        if self._is_plain and response is None:
            return self._line(stage, moment, status)
        request, decision, template = self._request, self.decision, self._template
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
        annotated = self._annotations or self._change is not None
        tail = (times, self._shown_annotations() if annotated else _verdict(self.verdict))
        if request is None and response is None:
            return b"".join((*head, *tail))
        omit = decision.omit_managed_fields
        if not omit and is_quick(request) and is_quick(response):
            return b"".join((*head, *objects_of(request, response), *tail))
        return AuditEvent(b"".join(head), b"".join(tail)[:-1], request, response, omit_managed_fields=omit)

    def _line(self, stage: str, moment: float, status: bytes) -> Line:
        """Return the event of a request about which nothing is noted but the verdict: most reads.

        It is one long join, because most events are made here.
        """
        template, name, verdict, received = self._template, self._name, self.verdict, self.received
        first, second = int(received), int(moment)
        text = second_text(first)
        micros, later = int((received - first) * 1_000_000), int((moment - second) * 1_000_000)
        try:
            quoted = dumps(name) if name else b""
        except orjson.JSONEncodeError:
            quoted = json_bytes(name)
        return b"".join(
            (
                self.decision.opening,
                dumps(self._audit_id),
                STAGES[stage],
                dumps(self._uri),
                template.named if name else template.before_name,
                quoted,
                template.after_name,
                b',"responseStatus":' if status else b"",
                status,
                b',"requestReceivedTimestamp":"',
                text,
                THOUSAND[micros // 1000],
                THOUSAND[micros % 1000],
                b'Z","stageTimestamp":"',
                text if second == first else second_text(second),
                THOUSAND[later // 1000],
                THOUSAND[later % 1000],
                b'Z"',
                _allowed.get(verdict.reason) or _verdict(verdict)
                if verdict is not None and verdict.decision is ALLOW
                else _verdict(verdict),
            )
        )

    def _shown_annotations(self) -> bytes:
        """Return the annotations and the end of the event."""
        found: Mapping[str, str] = self._annotations or {}
        if self.verdict is not None:
            found = {**_annotations(self.verdict), **found}
        if self._change is not None:
            found = {**found, CHANGES: self._change.shown()}
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
_allowed: dict[str, bytes] = kept("reasons in audit events")
_forbidden: dict[str, bytes] = kept("reasons in audit events")
"""The ends of events by the reason of the verdict. Names of bindings are among the reasons, so all are forgotten when
there are more."""


def _verdict(verdict: Verdict | None) -> bytes:
    """Return the annotations of the verdict and the end of an event."""
    if verdict is None:
        return b"}\n"
    kept = _allowed if verdict.decision is ALLOW else _forbidden
    known = kept.get(verdict.reason)
    if known is None or verdict.error:
        known = b',"annotations":%b}\n' % json_bytes(_annotations(verdict))
        if not verdict.error:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            kept[verdict.reason] = known
    return known


def _annotations(verdict: Verdict) -> dict[str, str]:
    """Return the annotations of a verdict: the decision of the authorizers, and its reason."""
    if verdict.decision is ALLOW:
        return {DECISION: "allow", REASON: verdict.reason}
    return {REASON: "internal error"} if verdict.error else {DECISION: "forbid", REASON: verdict.reason}


def _fields(values: Mapping[str, Any]) -> bytes:
    """Return fields as they continue an object: ``,"a":1``."""
    return b"," + json_bytes(values)[1:-1] if values else b""


def _reference(info: RequestInfo) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the pieces of objectRef; see EventTemplate."""
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


def code_status(code: int) -> bytes:
    """Return the status of an event for an answer that is no Status object."""
    return b'{"metadata":{},"code":%d}' % code


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
    return Payload(body, media_type, gzipped) if media_type in negotiate.WITH_CBOR.types else None
