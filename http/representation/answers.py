"""The form of an answer by the request's Accept field, and the responses that every handler may give."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

from kubechronicle.api.codecs import negotiate
from kubechronicle.api.codecs.errors import NotAcceptableError
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote, without_html
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request, Response

CACHE_CONTROL = ("cache-control", "no-cache, private")
# Characters of all warnings of an answer; if there are more, characters of each (kube-apiserver's WithWarningRecorder).
MAX_WARNINGS = 4 * 1024
MAX_CUT_WARNING = 256
GZIPPED = [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
JSON_FORM = Representation(media_type=negotiate.JSON)


# Subresources that kube-apiserver shows in no table: of any resource, and of (resource, group).
_TABLELESS = frozenset({"approval", "ephemeralcontainers", "finalize", "resize"})
_WITHOUT_STATUS_TABLE = frozenset(
    {
        ("apiservices", "apiregistration.k8s.io"),
        ("customresourcedefinitions", "apiextensions.k8s.io"),
        ("resourceclaims", "resource.k8s.io"),
    }
)


def has_tables(info: RequestInfo) -> bool:
    """Return whether the storage of the resource or subresource converts to tables (rest.TableConvertor)."""
    if info.subresource == "status":
        return (info.resource, info.group) not in _WITHOUT_STATUS_TABLE
    return info.subresource not in _TABLELESS


def object_form(request: Request, context: Context, *, protobuf: bool = True, tables: bool = True) -> Representation:
    """Negotiate the form of an object or a list. ``protobuf``, ``tables``: True if the kind has such a form.
    NotAcceptableError.

    Of kinds without protobuf, such as custom resources, no router of kube-apiserver checks the media types before.
    """
    accept = request.headers.get("accept")
    tables = tables and has_tables(context.info)
    if protobuf:
        negotiate.check_route(accept, context.formats, lists=context.info.verb in ("list", "watch"))
    form = negotiate.resource(accept, context.formats, protobuf=protobuf, tables=tables)
    return _pretty(form, request, context)


def watch_form(request: Request, context: Context, *, protobuf: bool = True) -> Representation:
    """Negotiate the form of a watch. ``protobuf``: True if the kind has such a form. StatusError 406."""
    accept = request.headers.get("accept")
    if not request.is_websocket and protobuf:
        negotiate.check_route(accept, context.formats, lists=True)
    return negotiate.watch(accept, context.formats, protobuf=protobuf)


def discovery_form(request: Request, context: Context, *, aggregated: bool = True) -> Representation:
    """Negotiate the form of a discovery document. ``aggregated``: it has an aggregated form, too. StatusError 406."""
    accept = request.headers.get("accept")
    read = negotiate.discovery if aggregated else negotiate.plain
    return read(accept, context.formats)


def status_form(request: Request) -> Representation:
    """Negotiate the form of a Status, which has no table; JSON if the client accepts no form of it."""
    formats = negotiate.WITHOUT_CBOR
    with contextlib.suppress(LookupError):  # no context: the request failed before the filter that attaches it
        formats = request.attached(Context).formats
    try:
        form = negotiate.plain(request.headers.get("accept"), formats)
    except NotAcceptableError:
        return JSON_FORM
    return Representation(media_type=form.media_type)


def takes_gzip(request: Request) -> bool:
    """Tell whether the client accepts gzip."""
    accepted = [token.partition(";") for token in request.headers.get("accept-encoding").split(",")]
    return any(name.strip() == "gzip" and not _REFUSED.fullmatch(further) for name, _, further in accepted)


_REFUSED = re.compile(r"\s*q=0(\.0*)?\s*", re.IGNORECASE)


def _pretty(form: Representation, request: Request, context: Context) -> Representation:
    if form.pretty or not negotiate.wants_pretty(context.query.get("pretty"), request.headers.get("user-agent")):
        return form
    return replace(form, pretty=True)


def status_response(request: Request, error: StatusError) -> Response:
    """Return the answer that is a Status, with the warnings of the request."""
    form = status_form(request)
    headers = [("content-type", form.content_type), CACHE_CONTROL, ("x-content-type-options", "nosniff")]
    headers.extend((name.lower(), value) for name, value in error.headers.items())
    with contextlib.suppress(LookupError):  # no context: the request failed before the filter that attaches it
        context = request.attached(Context)
        headers.append(("audit-id", context.audit_id))
        headers.extend(("warning", text) for text in warning_fields(context.warnings))
    return Response(error.code, headers, encode(error.body(), form.media_type))


def internal_error_text(request: Request, why: str) -> Response:
    """Return a 500 that is no Status but text, as responsewriters.InternalError writes it."""
    uri = f"{request.raw_path}?{request.query_string}" if request.query_string else request.raw_path
    text = without_html(f"Internal Server Error: {go_quote(uri)}: {why}")
    headers = [("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff")]
    return Response(500, headers, f"{text}\n".encode())


def timed_out() -> Response:
    """Return the 504 of a request whose time is over: a Status without kind and version, whatever the client accepts.

    kube-apiserver's WithTimeout stands outside of negotiation.
    """
    body = status.RequestTimedOut().body()
    del body["kind"], body["apiVersion"]
    return Response(504, [("content-type", "text/plain; charset=utf-8"), CACHE_CONTROL], encode(body, negotiate.JSON))


def too_many_requests(seconds: int) -> Response:
    """Answer 429 as kube-apiserver does to a request for which it has no seats."""
    headers = [
        ("retry-after", str(seconds)),
        ("content-type", "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
    ]
    return Response(429, headers, b"Too many requests, please try again later.\n")


def undetermined_request(request: Request) -> Response:
    """Return the 500 for a path that ends with an old verb: it names neither kind nor namespace."""
    path = request.raw_path if _VALID_PATH.fullmatch(request.raw_path) else quote(request.path, safe=_UNESCAPED)
    url = f"{path}?{request.query_string}" if request.query_string else path
    why = f"unable to determine kind and namespace from url, {url}"
    return internal_error_text(request, f"failed to create RequestInfo: {why}")


# Go's net/url prints a path as received if it has these characters only, and otherwise escapes it anew.
_UNESCAPED = "$&+,/:;=@"
_VALID_PATH = re.compile(r"(?:[A-Za-z0-9\-_.~!$&'()*+,/:;=@\[\]]|%[0-9A-Fa-f]{2})*")


def warning_fields(warnings: Sequence[str]) -> list[str]:
    """Return the Warning field of each distinct warning: proxies reject answers with too large a header.

    From the warning on with which they are too long together, all are cut. Those after the one that is too long even so
    are dropped (k8s.io/apiserver ``pkg/endpoints/filters/warning.go``).
    """
    shown: list[str] = []
    length, cutting = 0, False
    for text in dict.fromkeys(warnings):
        if cutting and length >= MAX_WARNINGS:
            break
        shown.append(text[:MAX_CUT_WARNING] if cutting else text)
        length += len(shown[-1])
        if not cutting and length > MAX_WARNINGS:
            cutting = True
            shown = [each[:MAX_CUT_WARNING] for each in shown]
            length = sum(map(len, shown))
    return [f'299 - "{_quoted(text)}"' for text in shown]


def _quoted(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')


# -- answers without the form that was asked for ----------------------------------------------------------------------


def no_list(rt: ResourceType) -> StatusError:
    """Return the error of a request for one object as a PartialObjectMetadataList."""
    if rt.custom is not None:  # unstructured objects pass for lists, until their items are read
        return status.unknown("content is not a list")
    return status.not_acceptable_because(
        f"you requested PartialObjectMetadataList, but the requested object is not a list (*{_go_type(rt, rt.kind)})"
    )


def no_object(rt: ResourceType) -> StatusError:
    """Return the error of a request for a list as one PartialObjectMetadata."""
    return status.not_acceptable_because(
        f"you requested PartialObjectMetadata, but the requested object is a list (*{_go_type(rt, rt.list_kind)})"
    )


def _go_type(rt: ResourceType, kind: str) -> str:
    """Return the internal Go type in the error message: ``rbac.Role`` of rbac.authorization.k8s.io. Events have one."""
    if rt.custom is not None:
        return "unstructured.UnstructuredList"
    package = rt.group.partition(".")[0]
    return f"{'core' if package in ('', 'events') else package}.{kind}"
