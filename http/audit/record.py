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
from kubechronicle.api.audit.events import Event, json_bytes, micro_time
from kubechronicle.api.audit.matching import Decision
from kubechronicle.api.audit.payloads import Payload
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authentication.user import User
from kubechronicle.http.messages import Headers

MAX_USER_AGENT: Final = 1024
CUT: Final = "...TRUNCATED"
METADATA, REQUEST, REQUEST_RESPONSE = 1, 2, 3
"""Ranks of levels, as in Decision."""
FULL_ANNOTATIONS: Final = "patch.webhook.admission.k8s.io/"
"""The prefix of annotations that hold contents. Events of level Metadata have none of them."""


class RequestAudit:
    """The record of one request.

    ``annotations``: those of the events. ``late``: those that only the last event has.
    """

    __slots__ = (
        "_agent",
        "_audit_id",
        "_changed",
        "_info",
        "_peer",
        "_request",
        "_subject",
        "_uri",
        "_user",
        "annotations",
        "decision",
        "late",
        "received",
    )

    def __init__(
        self,
        decision: Decision,
        audit_id: str,
        uri: str,
        info: RequestInfo,
        user: User | None,
        headers: Headers,
        peer: str,
        received: float,
    ) -> None:
        """``user`` None: the request was not authenticated. ``received``: seconds since the epoch."""
        self.decision = decision
        self.received = received
        self.annotations: dict[str, str] = {}
        self.late: dict[str, str] = {}
        self._audit_id = audit_id
        self._uri = uri
        self._info = info
        self._user = user
        self._peer = peer
        self._agent = agent = headers.get("user-agent")
        self._subject = _subject(user, info.verb, headers, peer, agent)
        self._request: Payload | None = None
        self._changed: dict[str, str] | None = None

    # -- what filters and handlers add --------------------------------------------------------------------------------

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation; the first value of a key is kept."""
        self.annotations.setdefault(key, value)

    def annotate_late(self, key: str, value: str) -> None:
        """Add an annotation to the last event alone."""
        self.late.setdefault(key, value)

    def impersonates(self, user: User, constraint: str = "") -> None:
        """Record the impersonated user. ``constraint``: the verb of the constrained mode (KEP-5284); "": legacy."""
        fields: dict[str, Any] = {"impersonatedUser": user_info(user)}
        if constraint:
            fields["authenticationMetadata"] = {"impersonationConstraint": constraint}
        self._subject += b"," + json_bytes(fields)[1:-1]

    def note_object(self, obj: Object) -> None:
        """Record the decoded object of the request, in its version, before anything changes it. May run in a thread."""
        meta = obj.get("metadata")
        if isinstance(meta, dict) and self._info.is_resource:
            self._changed = {key: value for key in _FROM_OBJECT if (value := meta.get(key))}
        if self.decision.rank >= REQUEST:
            self._request = Payload(orjson.dumps(obj))

    def note_body(self, body: bytes, media_type: str) -> None:
        """Record the body of a patch as it was sent."""
        if self.decision.rank >= REQUEST:
            self._request = Payload(body, media_type, checked=False)

    # -- events -------------------------------------------------------------------------------------------------------

    def event(self, stage: str, moment: float, *, status: bytes = b"", response: Payload | None = None) -> Event:
        """Return the event of a stage. ``moment``: its time in seconds since the epoch. ``status``: as JSON."""
        decision, dumps = self.decision, orjson.dumps
        head = b"".join(
            (
                decision.opening,
                dumps(self._audit_id),
                STAGES[stage],
                dumps(self._uri),
                self._subject,
                self._reference() if self._info.is_resource else b"",
                b',"responseStatus":' + status if status else b"",
            )
        )
        received = self.received
        times = f',"requestReceivedTimestamp":"{micro_time(received)}","stageTimestamp":"{micro_time(moment)}"'
        if self.annotations:
            tail = b'%b,"annotations":%b}' % (times.encode(), json_bytes(self._shown_annotations()))
        else:
            tail = times.encode() + b"}"
        return Event(head, tail, self._request, response, omit_managed_fields=decision.omit_managed_fields)

    def _shown_annotations(self) -> dict[str, str]:
        if len(self.annotations) <= 2:  # those of authorization, in order
            return self.annotations
        if self.decision.rank >= REQUEST:
            return dict(sorted(self.annotations.items()))
        return {key: value for key, value in sorted(self.annotations.items()) if not key.startswith(FULL_ANNOTATIONS)}

    def _reference(self) -> bytes:
        """Return the field objectRef: from the path, and what it lacks from the object."""
        info = self._info
        known = _references.get((info.group, info.version, info.resource, info.subresource))
        if known is None:
            known = _known_reference(info)
        pieces, changed, dumps = [known[0]], self._changed, json_bytes
        namespace, name = info.namespace, info.name
        if changed is not None:
            namespace, name = namespace or changed.get("namespace", ""), name or changed.get("name", "")
        if namespace:
            pieces += (b',"namespace":', dumps(namespace))
        if name:
            pieces += (b',"name":', dumps(name))
        if changed is not None and "uid" in changed:
            pieces += (b',"uid":', dumps(changed["uid"]))
        pieces.append(known[1])
        if changed is not None and "resourceVersion" in changed:
            pieces += (b',"resourceVersion":', dumps(changed["resourceVersion"]))
        pieces.append(known[2])
        return b"".join(pieces)


STAGES: Final = {stage: f',"stage":"{stage}","requestURI":'.encode() for stage in policies.STAGES}
_FROM_OBJECT: Final = ("namespace", "name", "uid", "resourceVersion")
MOST_KEPT: Final = 4096
"""Entries of each table below. Clients choose them, so all are forgotten when there are more."""
_references: dict[tuple[str, str, str, str], tuple[bytes, bytes, bytes]] = {}
_subjects: dict[tuple[int, str, str, str], tuple[User | None, bytes]] = {}


def _known_reference(info: RequestInfo) -> tuple[bytes, bytes, bytes]:
    """Return the fixed pieces of objectRef: before the name, after it, and the end. They are kept."""
    version = {"apiGroup": info.group, "apiVersion": info.version} if info.group else {"apiVersion": info.version}
    subresource = b',"subresource":%b}' % json_bytes(info.subresource) if info.subresource else b"}"
    first = b',"objectRef":{"resource":' + json_bytes(info.resource)
    if len(_references) >= MOST_KEPT:
        _references.clear()
    found = (first, b"," + json_bytes(version)[1:-1], subresource)
    _references[info.group, info.version, info.resource, info.subresource] = found
    return found


def _subject(user: User | None, verb: str, headers: Headers, peer: str, agent: str) -> bytes:
    """Return the fields from verb to userAgent. They are kept by the User object: requests of one user share it."""
    if headers.get("x-forwarded-for") or headers.get("x-real-ip") or len(agent) > MAX_USER_AGENT:
        return _encoded_subject(user, verb, source_addresses(headers, peer), agent)
    key = (id(user), verb, peer, agent)
    known = _subjects.get(key)
    if known is None or known[0] is not user:
        if len(_subjects) >= MOST_KEPT:
            _subjects.clear()
        known = _subjects[key] = (user, _encoded_subject(user, verb, [peer] if peer else [], agent))
    return known[1]


def _encoded_subject(user: User | None, verb: str, sources: list[str], agent: str) -> bytes:
    fields: dict[str, Any] = {"verb": verb, "user": {} if user is None else user_info(user)}
    if sources:
        fields["sourceIPs"] = sources
    if agent:
        fields["userAgent"] = agent if len(agent) <= MAX_USER_AGENT else agent[:MAX_USER_AGENT] + CUT
    return b"," + json_bytes(fields)[1:-1]


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


_codes: dict[int, bytes] = {}


def code_status(code: int) -> bytes:
    """Return the status of an event for an answer that is no Status object."""
    known = _codes.get(code)
    if known is None:
        known = _codes[code] = b'{"metadata":{},"code":%d}' % code
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
