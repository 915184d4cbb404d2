"""The facts about one request for its audit events, collected while it is served.

It exists only for requests that the policy records, as ``Context.audit``. Filters and handlers add to it; every stage
makes an event from it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.audit.events import Event, micro_time
from kubechronicle.api.audit.matching import Decision
from kubechronicle.api.audit.payloads import Payload
from kubechronicle.api.audit.policy import API_VERSION
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
    ``latencies``: seconds that parts of the server took, for the event of a slow request.
    """

    __slots__ = (
        "_agent",
        "_audit_id",
        "_constraint",
        "_impersonated",
        "_reference",
        "_request",
        "_uri",
        "_user",
        "_verb",
        "annotations",
        "decision",
        "late",
        "latencies",
        "received",
        "sources",
    )

    def __init__(
        self,
        *,
        decision: Decision,
        audit_id: str,
        uri: str,
        info: RequestInfo,
        user: User | None,
        sources: list[str],
        agent: str,
        received: float,
    ) -> None:
        """``user`` None: the request was not authenticated. ``received``: seconds since the epoch."""
        self.decision = decision
        self.received = received
        self.sources = sources
        self.annotations: dict[str, str] = {}
        self.late: dict[str, str] = {}
        self.latencies: dict[str, float] = {}
        self._audit_id = audit_id
        self._uri = uri
        self._verb = info.verb
        self._user = {} if user is None else _known_info(user)
        self._agent = agent if len(agent) <= MAX_USER_AGENT else agent[:MAX_USER_AGENT] + CUT
        self._impersonated: dict[str, Any] | None = None
        self._constraint = ""
        self._request: Payload | None = None
        self._reference = _reference(info) if info.is_resource else None

    # -- what filters and handlers add --------------------------------------------------------------------------------

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation; the first value of a key is kept."""
        self.annotations.setdefault(key, value)

    def annotate_late(self, key: str, value: str) -> None:
        """Add an annotation to the last event alone."""
        self.late.setdefault(key, value)

    def impersonates(self, user: User, constraint: str = "") -> None:
        """Record the impersonated user. ``constraint``: the verb of the constrained mode (KEP-5284); "": legacy."""
        self._impersonated = user_info(user)
        self._constraint = constraint

    def note_object(self, obj: Object) -> None:
        """Record the decoded object of the request, in its version, before anything changes it. May run in a thread."""
        meta = obj.get("metadata")
        reference = self._reference
        if isinstance(meta, dict) and reference is not None:
            for field, key in _FROM_OBJECT:
                value = meta.get(key)
                if value and not reference.get(field):
                    reference[field] = value
        if self.decision.rank >= REQUEST:
            self._request = Payload(orjson.dumps(obj))

    def note_body(self, body: bytes, media_type: str) -> None:
        """Record the body of a patch as it was sent."""
        if self.decision.rank >= REQUEST:
            self._request = Payload(body, media_type, checked=False)

    # -- events -------------------------------------------------------------------------------------------------------

    def event(
        self,
        stage: str,
        moment: float,
        *,
        status: Mapping[str, Any] | None = None,
        response: Payload | None = None,
    ) -> Event:
        """Return the event of a stage. ``moment``: its time, in seconds since the epoch."""
        decision, reference, request = self.decision, self._reference, self._request
        values: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": API_VERSION,
            "level": decision.level,
            "auditID": self._audit_id,
            "stage": stage,
            "requestURI": self._uri,
            "verb": self._verb,
            "user": self._user,
        }
        if self._impersonated is not None:
            values["impersonatedUser"] = self._impersonated
            if self._constraint:
                values["authenticationMetadata"] = {"impersonationConstraint": self._constraint}
        if self.sources:
            values["sourceIPs"] = self.sources
        if self._agent:
            values["userAgent"] = self._agent
        if reference is not None:
            values["objectRef"] = reference if stage == "ResponseComplete" else {**reference}
        if status is not None:
            values["responseStatus"] = status
        if request is not None:
            values["requestObject"] = None
        if response is not None:
            values["responseObject"] = None
        values["requestReceivedTimestamp"] = micro_time(self.received)
        values["stageTimestamp"] = micro_time(moment)
        if self.annotations:
            values["annotations"] = self._shown_annotations()
        return Event(values, request, response, omit_managed_fields=decision.omit_managed_fields)

    def _shown_annotations(self) -> dict[str, str]:
        if len(self.annotations) <= 2:  # those of authorization, in order
            return self.annotations.copy()
        if self.decision.rank >= REQUEST:
            return dict(sorted(self.annotations.items()))
        return {key: value for key, value in sorted(self.annotations.items()) if not key.startswith(FULL_ANNOTATIONS)}


_FROM_OBJECT: Final = (
    ("namespace", "namespace"),
    ("name", "name"),
    ("uid", "uid"),
    ("resourceVersion", "resourceVersion"),
)


_infos: dict[int, tuple[User, dict[str, Any]]] = {}
_MOST_INFOS: Final = 1024


def _known_info(user: User) -> dict[str, Any]:
    """Return ``user_info``, kept by the User object: requests of one user share it."""
    known = _infos.get(id(user))
    if known is None or known[0] is not user:
        if len(_infos) >= _MOST_INFOS:
            _infos.clear()
        known = _infos[id(user)] = (user, user_info(user))
    return known[1]


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


def _reference(info: RequestInfo) -> dict[str, str]:
    reference = {"resource": info.resource}
    if info.namespace:
        reference["namespace"] = info.namespace
    if info.name:
        reference["name"] = info.name
    if info.group:
        reference["apiGroup"] = info.group
    reference["apiVersion"] = info.version
    if info.subresource:
        reference["subresource"] = info.subresource
    return reference


def error_status(error: StatusError) -> dict[str, Any]:
    """Return the status of an event for an answer that is an error."""
    return shown_status(error.body(), error.code)


def shown_status(status: Mapping[str, Any], code: int) -> dict[str, Any]:
    """Return the parts of a Status object that an event shows. ``code``: the answer's."""
    shown = {field: status[field] for field in ("status", "message", "reason", "details") if status.get(field)}
    if status.get("details") is not None:
        shown["details"] = status["details"]
    return {"metadata": {}, **shown, "code": code}


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
