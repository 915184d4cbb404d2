"""Options of lists and watches, from the query: parsing and validation with Kubernetes' messages."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.codecs.json import decode_value, go_kind
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden, not_supported
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import Query, boolean, first, integer, raise_invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Options of a list, a watch or a deletion of a collection. ``limit`` 0 is all; a negative one is the same."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    watch: bool = False
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None


def parse_list_options(
    query: Query, check_selectors: Callable[[ListOptions], None] | None = None, *, watch_list: bool = True
) -> ListOptions:
    """Parse the options of a list or watch, which the parameter ``watch`` tells apart.

    ``watch_list``: a watch may ask for the state first (the feature gate WatchList).

    ``check_selectors`` raises for selectors that do not parse: after malformed and before unsupported values.

    As in kube-apiserver, it also does for a watch whose path begins with /watch/: without the parameter, its options
    are checked as those of a list.
    """
    watching = bool(boolean(query, "watch"))
    options = ListOptions(
        label_selector=first(query, "labelSelector"),
        field_selector=first(query, "fieldSelector"),
        timeout_seconds=integer(query, "timeoutSeconds"),  # before the limit: the first malformed value is reported
        limit=max(integer(query, "limit") or 0, 0),
        continue_=first(query, "continue"),
        resource_version=first(query, "resourceVersion"),
        resource_version_match=first(query, "resourceVersionMatch"),
        watch=watching,
        allow_watch_bookmarks=bool(boolean(query, "allowWatchBookmarks")),
        send_initial_events=boolean(query, "sendInitialEvents"),
    )
    if check_selectors is not None:
        check_selectors(options)
    if watching and watch_list:
        options = _with_initial_events(options)
    causes = _validate_watch(options, watch_list=watch_list) if watching else _validate_list(options)
    raise_invalid("ListOptions", causes)
    return options


_MATCH: Final = "resourceVersionMatch"


def _with_initial_events(options: ListOptions) -> ListOptions:
    """Return the options of a watch with their defaults: a watch from no revision, or from "0", begins with the state,
    and ends it with a bookmark if bookmarks are allowed (SetListOptionsDefaults of apimachinery)."""
    if options.send_initial_events is not None or options.resource_version_match:
        return options
    if options.resource_version not in ("", "0"):
        return options
    return replace(options, send_initial_events=True, resource_version_match="NotOlderThan")


def _validate_list(options: ListOptions) -> list[Cause]:
    causes: list[Cause] = []
    match = options.resource_version_match
    if match:
        if not options.resource_version:
            causes.append(forbidden(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if options.continue_:
            causes.append(forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            causes.append(not_supported(_MATCH, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and options.resource_version == "0":
            causes.append(forbidden(_MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _validate_watch(options: ListOptions, *, watch_list: bool) -> list[Cause]:
    causes: list[Cause] = []
    match = options.resource_version_match
    if options.send_initial_events is not None and match != "NotOlderThan":
        detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(forbidden(_MATCH, detail))
    if options.send_initial_events is not None and not watch_list:
        detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        causes.append(forbidden("sendInitialEvents", detail))
    if not match:
        return causes
    if options.send_initial_events is None:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden(_MATCH, detail))
    if match != "NotOlderThan":
        causes.append(not_supported(_MATCH, match, ("NotOlderThan",)))
    if options.continue_:
        causes.append(forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
    return causes


# -- paging ------------------------------------------------------------------------------------------------------------
#
# Continue tokens of paged lists: the revision of the pages, and the key before the next page.
#
# The form is kube-apiserver's (k8s.io/apiserver/pkg/storage/continue.go), so that errors agree as well: unpadded
# base64url of {"v": "meta.k8s.io/v1", "rv": revision, "start": "<namespace>/<name>\0"}. Clients must treat it as
# opaque. Revision -1 continues without consistency, at the newest state (after an expired token).


VERSION = "meta.k8s.io/v1"
INCONSISTENT = -1


class Continue(NamedTuple):
    """The revision of the pages (-1: the newest, inconsistently), and the last (namespace, name) returned."""

    revision: int
    after: tuple[str, str]


def encode_continue(token: Continue) -> str:
    namespace, name = token.after
    start = f"{namespace}/{name}\0" if namespace else f"{name}\0"
    text = orjson.dumps({"v": VERSION, "rv": token.revision, "start": start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode_continue(text: str, *, namespaced: bool) -> Continue:
    """Decode a continue token. StatusError 400 if it is not valid. Any negative revision is INCONSISTENT.

    The page begins at the key of the token. That of a token of our own ends in NUL, so the page begins after its name.
    Text after a NUL sorts before every further name, so it is ignored.
    """
    token = _content(text)
    _check_types(token)
    version, revision, start = token.get("v") or "", token.get("rv") or 0, token.get("start") or ""
    if version != VERSION:
        raise _invalid(f"server does not recognize this encoded version {version}")
    if not revision:
        raise _invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not start:
        raise _invalid("encoded start key empty (version meta.k8s.io/v1)")
    path = start.removeprefix("/")
    if path and posixpath.normpath("/" + path) != "/" + path:
        raise _invalid(start)
    path, follows, _ = path.partition("\0")
    namespace, _, name = path.partition("/") if namespaced else ("", "", path)
    return Continue(max(revision, INCONSISTENT), (namespace, name if follows else _before(name)))


def _before(name: str) -> str:
    """Return a text that sorts before ``name``, and after every other name that does so."""
    if not name:
        return ""
    last = ord(name[-1]) - 1
    if not last:
        return name[:-1]
    return name[:-1] + chr(last if last != _LAST_SURROGATE else _FIRST_SURROGATE - 1) + chr(sys.maxunicode)


_FIRST_SURROGATE: Final = 0xD800
_LAST_SURROGATE: Final = 0xDFFF


def _content(text: str) -> dict[str, Any]:
    """Return the contents of a token. This server's tokens take a short path; for others, find the error."""
    try:
        padded = text + "=" * (-len(text) % 4)
        token = orjson.loads(binascii.a2b_base64(padded.translate(_STANDARD), strict_mode=True))
        if token.__class__ is dict and token.keys() <= _TYPES.keys() and "=" not in text:
            return dict(token)
    except ValueError:
        pass
    raw = _decoded(text)
    try:
        value, _ = decode_value(raw)
    except DecodeError as error:
        raise _invalid(error.message) from None
    if value is not None and not isinstance(value, dict):
        raise _invalid(f"json: cannot unmarshal {go_kind(value)} into Go value of type storage.continueToken")
    # As encoding/json: names match in upper or lower case, and null changes nothing.
    return {name.lower(): field for name, field in (value or {}).items() if field is not None}


_STANDARD: Final = str.maketrans("-_+/", "+/  ")
_TYPES: Final = {"v": (str, "string"), "rv": (int, "int64"), "start": (str, "string")}


def _check_types(token: Mapping[str, Any]) -> None:
    for name, value in token.items():
        kind, go_type = _TYPES.get(name, (object, ""))
        if value is None or _fits(value, kind):
            continue
        shown = f"number {value}" if name == "rv" and go_kind(value) == "number" else go_kind(value)
        raise _invalid(f"json: cannot unmarshal {shown} into Go struct field continueToken.{name} of type {go_type}")


def _fits(value: object, kind: type) -> bool:
    if kind is not int:
        return isinstance(value, kind)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _invalid(why: str) -> StatusError:
    return status.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _decoded(text: str) -> bytes:
    """Decode unpadded base64url as Go does, which ignores line ends. StatusError 400 with the first wrong byte."""
    raw = text.encode("utf-8", "surrogatepass")
    kept = raw.translate(None, b"\r\n")
    foreign = _FOREIGN.search(raw)
    if foreign is None and len(kept) % 4 != 1:
        return base64.urlsafe_b64decode(kept + b"=" * (-len(kept) % 4))
    at = foreign.start() if foreign is not None else len(raw) - 1
    raise _invalid(f"illegal base64 data at input byte {at}")


_FOREIGN: Final = re.compile(rb"[^A-Za-z0-9_\r\n-]")
