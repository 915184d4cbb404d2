"""Content negotiation: the representation of an answer from Accept, and the codec of a body from Content-Type.

Everything here is a pure function of header values. The clauses of an Accept header are tried in Kubernetes' order (by
q, then concrete before wildcard, else as written). The first that the endpoint can serve wins:

    application/json;as=Table;v=v1;g=meta.k8s.io,application/json   on a resource    -> a Table in JSON
                                                                    on /apis/apps    -> plain JSON

Accept of a resource route is checked twice, as in kube-apiserver: by the router (`check_route`), which knows `*/*` but
not `application/*`, then by the negotiation itself. Sources: apiserver pkg/endpoints/handlers/negotiation and
pkg/endpoints/discovery/aggregated, go-restful's Route, goautoneg.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kubechronicle.api.codecs.errors import NotAcceptableError, UnsupportedMediaTypeError

__all__ = [
    "APPLY_CBOR",
    "CBOR",
    "CBOR_GATE",
    "COMPRESSION",
    "COMPRESSION_GATES",
    "JSON",
    "MEDIA_TYPES",
    "PATCH_TYPES",
    "PROTOBUF",
    "STREAM_MEDIA_TYPES",
    "WATCH_COMPRESSION",
    "WITHOUT_CBOR",
    "WITH_CBOR",
    "YAML",
    "Formats",
    "Representation",
    "body_type",
    "check_route",
    "discovery",
    "one_of",
    "operator_page",
    "patch_type",
    "plain",
    "resource",
    "wants_pretty",
    "watch",
]

JSON = "application/json"
YAML = "application/yaml"
TEXT = "text/plain"
PROTOBUF = "application/vnd.kubernetes.protobuf"
CBOR = "application/cbor"
CBOR_SEQUENCE = "application/cbor-seq"
"""The type of a watch in CBOR (RFC 8742)."""

# In the order of preference for a wildcard.
MEDIA_TYPES = (JSON, YAML, PROTOBUF)
STREAM_MEDIA_TYPES = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
APPLY_CBOR = "application/apply-patch+cbor"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


@dataclass(frozen=True, slots=True)
class Formats:
    """The media types that a server offers: of documents, of watches, and of patches."""

    types: tuple[str, ...]
    streams: tuple[str, ...]
    patches: tuple[str, ...]


WITHOUT_CBOR = Formats(MEDIA_TYPES, STREAM_MEDIA_TYPES, PATCH_TYPES)
WITH_CBOR = Formats((*MEDIA_TYPES, CBOR), (*STREAM_MEDIA_TYPES, CBOR_SEQUENCE), (*PATCH_TYPES, APPLY_CBOR))
"""Those with the feature gate of CBOR (KEP-4222)."""
CBOR_GATE = "CBORServingAndStorage"
COMPRESSION = "APIResponseCompression"
"""The gate of answers in gzip."""
WATCH_COMPRESSION = "WatchListCompression"
"""The gate of watches in gzip."""
COMPRESSION_GATES = (COMPRESSION, WATCH_COMPRESSION)

_LONGEST_TYPE = 2048
"""Characters of a Content-Type that are read."""
# Clauses up to which Go's sort is an insertion sort.
FEW_CLAUSES = 12

_META_KINDS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_DISCOVERY_GROUP, _DISCOVERY_KIND = "apidiscovery.k8s.io", "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True, kw_only=True)
class Representation:
    """The form of an answer: a media type, and the kind to convert the object to.

    `kind`, `group`, `version`: the parameters as, g and v; all "" for the object itself.
    """

    media_type: str
    kind: str = ""
    group: str = ""
    version: str = ""
    pretty: bool = False
    stream: str = ""

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer; aggregated discovery documents name their kind in it."""
        if self.group == _DISCOVERY_GROUP:
            return f"{self.media_type};g={self.group};v={self.version};as={self.kind}"
        return self.media_type

    @property
    def stream_content_type(self) -> str:
        """The Content-Type of a watch."""
        if self.media_type == CBOR:
            return CBOR_SEQUENCE
        return JSON if self.media_type == JSON else f"{self.media_type};stream=watch"


# (media type, kind, group, version) -> the endpoint can answer in this form; kind is "" for no conversion.
_Allows = Callable[[str, str, str, str], bool]


def plain(accept: str | None, formats: Formats = WITHOUT_CBOR) -> Representation:
    """Negotiate for documents without conversions. NotAcceptableError if no clause can be served."""
    return _acceptable(_negotiate(accept or "", _allows_plain, formats), formats)


def resource(
    accept: str | None, formats: Formats = WITHOUT_CBOR, *, protobuf: bool = True, tables: bool = True
) -> Representation:
    """Negotiate for an object or list. `protobuf` is False for custom resources, `tables` for answers that have no rows
    (reviews). Raises NotAcceptableError."""
    allows = _allows_resource if protobuf else _allows_custom_resource
    return _acceptable(_negotiate(accept or "", allows if tables else _allows_no_table, formats), formats)


def watch(accept: str | None, formats: Formats = WITHOUT_CBOR, *, protobuf: bool = True) -> Representation:
    """Negotiate for a watch, which cannot be YAML. Raises NotAcceptableError."""
    found = _negotiate(accept or "", _allows_resource if protobuf else _allows_custom_resource, formats)
    if found is None or found.media_type == YAML:
        raise NotAcceptableError(formats.streams)
    return found


def discovery(accept: str | None, formats: Formats = WITHOUT_CBOR) -> Representation:
    """Negotiate for /api and /apis: aggregated if any clause requests it, else plain. Raises NotAcceptableError."""
    aggregated = _negotiate(accept, _allows_aggregated, formats) if accept else None
    return aggregated or plain(accept, formats)


def operator_page(accept: str | None, kind: str, formats: Formats = WITHOUT_CBOR) -> Representation:
    """Negotiate for a page of operators: a text, or an object of config.k8s.io (``kind``: Flagz, Statusz).

    Raises NotAcceptableError, for JSON without the name of the object as well. Source: k8s.io/apiserver
    ``pkg/server/flagz/negotiate``.
    """
    types = (*(each for each in formats.types if each != PROTOBUF), TEXT)
    if not (accept or "").strip():
        return Representation(media_type=TEXT)

    def allows(media_type: str, asked: str, group: str, version: str) -> bool:
        if media_type == TEXT:
            return not (asked or group or version)
        return (asked, group) == (kind, "config.k8s.io") and version in ("v1alpha1", "v1beta1")

    found = _negotiate(accept or "", allows, replace(formats, types=types))
    if found is None or found.stream:
        raise NotAcceptableError(types)
    return found


def one_of(accept: str | None, offered: Sequence[str]) -> str:
    """Return the first offered type that a clause accepts, with any parameters; "" if none does."""
    for clause in _clauses(accept or "*/*"):
        for media_type in offered:
            if clause.matches(media_type):
                return media_type
    return ""


def check_route(
    accept: str | None,
    formats: Formats = WITHOUT_CBOR,
    *,
    lists: bool = False,
    types: Sequence[str] | None = None,
) -> None:
    """Check Accept as the router does. `lists`: the route can also be watched; `types`: those of the route, if it has
    others.

    NotAcceptableError with `at_route` unless a clause has, apart from parameters, one of the route's types or `*/*`.
    """
    types = formats.types if types is None else types
    if not accept or accept == JSON == types[0]:
        return
    for clause in accept.split(","):
        media_type = clause.partition(";")[0].strip(" ")
        if media_type == "*/*" or media_type in types:
            return
    raise NotAcceptableError((*types, *formats.streams) if lists else types, at_route=True)


def wants_pretty(query: str | None, user_agent: str | None) -> bool:
    """Return whether to indent, if Accept does not decide: by the query parameter, else for browsers and curl."""
    if query:
        return query in {"1", "t", "T", "true", "TRUE", "True"}
    return bool(user_agent) and str(user_agent).startswith(("curl", "Wget", "Mozilla/5.0"))


def body_type(content_type: str | None, formats: Formats = WITHOUT_CBOR) -> str:
    """Return the media type of a body, one of the server's; JSON by default. Raises UnsupportedMediaTypeError."""
    if not content_type:
        return JSON
    media_type = _media_type(content_type)
    if media_type not in formats.types:
        raise UnsupportedMediaTypeError(content_type, formats.types)
    return media_type


def patch_type(content_type: str | None, formats: Formats = WITHOUT_CBOR, *, custom: bool = False) -> str:
    """Return the patch type of a PATCH body. Custom resources have no strategic merge. UnsupportedMediaTypeError."""
    media_type = (content_type or "").partition(";")[0].strip(" ")
    accepted = tuple(t for t in formats.patches if not custom or t != STRATEGIC_MERGE_PATCH)
    if media_type not in accepted:
        raise UnsupportedMediaTypeError(content_type or "", accepted, at_route=not custom)
    return media_type


# -- forms of endpoints ----------------------------------------------------------------------------------------------


def _allows_plain(media_type: str, kind: str, group: str, version: str) -> bool:
    return not (kind or group or version)


def _allows_resource(media_type: str, kind: str, group: str, version: str) -> bool:
    if not (kind or group or version):
        return True
    if group != "meta.k8s.io" or version not in ("v1", "v1beta1") or kind not in _META_KINDS:
        return False
    return kind != "Table" or media_type != PROTOBUF


def _allows_no_table(media_type: str, kind: str, group: str, version: str) -> bool:
    return kind != "Table" and _allows_resource(media_type, kind, group, version)


def _allows_custom_resource(media_type: str, kind: str, group: str, version: str) -> bool:
    """Reject protobuf for custom objects themselves; their metadata alone has a protobuf form."""
    if media_type == PROTOBUF and not (kind or group or version):
        return False
    return _allows_resource(media_type, kind, group, version)


def _allows_aggregated(media_type: str, kind: str, group: str, version: str) -> bool:
    return kind == _DISCOVERY_KIND and group == _DISCOVERY_GROUP and version == "v2"


# -- the Accept header -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clause:
    type: str
    subtype: str
    q: float
    parameters: dict[str, str]

    def matches(self, media_type: str) -> bool:
        kind, _, subtype = media_type.partition("/")
        if self.type == kind:
            return self.subtype in (subtype, "*")
        return self.type == "*" and self.subtype == "*"


def _acceptable(representation: Representation | None, formats: Formats) -> Representation:
    if representation is None:
        raise NotAcceptableError(formats.types)
    return representation


def _negotiate(accept: str, allows: _Allows, formats: Formats) -> Representation | None:
    if not accept:
        return Representation(media_type=JSON)
    for clause in _clauses(accept):
        for media_type in formats.types:
            if clause.matches(media_type) and (found := _representation(media_type, clause.parameters, allows)):
                return found
    return None


def _representation(media_type: str, parameters: dict[str, str], allows: _Allows) -> Representation | None:
    stream = parameters.get("stream", "")
    if stream and (stream != "watch" or media_type == YAML):
        return None
    if parameters.get("sv"):
        return None  # the version of a server group: only one exists
    kind, group, version = parameters.get("as", ""), parameters.get("g", ""), parameters.get("v", "")
    if not allows(media_type, kind, group, version):
        return None
    return Representation(
        media_type=media_type,
        kind=kind,
        group=group,
        version=version,
        pretty=parameters.get("pretty") == "1",
        stream=stream,
    )


def _clauses(accept: str) -> Sequence[_Clause]:
    """Parse and sort an Accept header as goautoneg does.

    Its order is not total, so a few clauses are sorted by insertion, as Go's sort does. More of them are sorted by a
    key. Repeated clauses cannot change the result, so they are left out: an attacker's header has thousands.
    """
    texts = accept.split(",")
    if len(texts) > FEW_CLAUSES:
        texts = list(dict.fromkeys(texts))
    found = [clause for text in texts if (clause := _clause(text.strip(" "))) is not None]
    if len(found) > FEW_CLAUSES:
        return sorted(found, key=_rank)
    clauses: list[_Clause] = []
    for clause in found:
        at = len(clauses)
        while at > 0 and _before(clause, clauses[at - 1]):
            at -= 1
        clauses.insert(at, clause)
    return clauses


def _before(one: _Clause, other: _Clause) -> bool:
    return one.q > other.q or (one.type != "*" and other.type == "*") or (one.subtype != "*" and other.subtype == "*")


def _rank(clause: _Clause) -> tuple[float, bool, bool]:
    return -clause.q, clause.type == "*", clause.subtype == "*"


def _clause(part: str) -> _Clause | None:
    media_type, *rest = part.split(";")
    kind, _, subtype = media_type.partition("/")
    kind, subtype = kind.strip(" "), subtype.strip(" ")
    if not subtype:
        if kind != "*":
            return None
        subtype = "*"
    if "/" in subtype:
        return None
    q, parameters = 1.0, {}
    for item in rest:
        name, _, value = item.partition("=")
        name = name.strip(" ")
        if not value or "=" in value:
            continue
        if name == "q":
            q = _quality(value)
        else:
            parameters[name] = value.strip(" ")
    return _Clause(kind, subtype, q, parameters)


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if quality == quality else 0.0  # NaN has no place in an order


# -- the Content-Type header -----------------------------------------------------------------------------------------

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTENT_TYPE = re.compile(
    rf'\s*({_TOKEN}/{_TOKEN})\s*(?:;\s*(?:{_TOKEN}\s*=\s*(?:{_TOKEN}|"(?:[^"\\]|\\.)*")\s*)?)*', re.ASCII
)


def _media_type(content_type: str) -> str:
    """Return the type without its parameters, in lower case; "" if malformed."""
    match = _CONTENT_TYPE.fullmatch(content_type[:_LONGEST_TYPE])
    return match[1].lower() if match else ""
