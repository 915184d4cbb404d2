"""Options of gets, lists and watches, from the query: parsing and validation with Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden, not_supported
from kubechronicle.api.meta.options import raise_invalid
from kubechronicle.api.meta.queries import Query, boolean, first, integer


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOptions:
    """Options of a get."""

    resource_version: str = ""


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


def parse_get_options(query: Query) -> GetOptions:
    """Parse the options of a get. The reader checks the revision (``parse_resource_version``)."""
    if boolean(query, "export"):
        raise status.bad_request("the export parameter, deprecated since v1.14, is no longer supported")
    return GetOptions(resource_version=first(query, "resourceVersion"))


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
