"""Request options, from the query string or the body: parsing and validation with Kubernetes' messages.

Lives here: query → frozen record, or Kubernetes' StatusError. Not here: the effect of the options.

A query is the result of ``urllib.parse.parse_qs(text, keep_blank_values=True)``. As in Kubernetes, the first value of a
repeated parameter counts, only dryRun takes several, and unknown parameters are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value, not_supported, required
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.metadata import MAX_FIELD_MANAGER, validate_field_manager

Query = Mapping[str, Sequence[str]]

APPLY_PATCHES: Final = frozenset(("application/apply-patch+yaml", "application/apply-patch+cbor"))
PROPAGATION_POLICIES: Final = ("Foreground", "Background", "Orphan")
FIELD_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
OPTIONS_GROUP: Final = "meta.k8s.io"


class CreateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a create. ``field_validation`` is Strict, Warn or Ignore."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"


class UpdateOptions(CreateOptions, frozen=True, kw_only=True):
    """Options of an update."""


class PatchOptions(CreateOptions, frozen=True, kw_only=True):
    """Options of a patch. ``force`` is None if absent."""

    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of a delete; None stands for an absent option."""

    dry_run: bool = False
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    precondition_uid: str | None = None
    precondition_resource_version: str | None = None


def sent_options(options: DeleteOptions) -> dict[str, Any]:
    """Return the options of a delete as fields of a DeleteOptions object, without the absent ones."""
    preconditions = {"uid": options.precondition_uid, "resourceVersion": options.precondition_resource_version}
    fields: dict[str, Any] = {
        "gracePeriodSeconds": options.grace_period_seconds,
        "preconditions": {name: value for name, value in preconditions.items() if value is not None} or None,
        "orphanDependents": options.orphan_dependents,
        "propagationPolicy": options.propagation_policy,
        "dryRun": ["All"] if options.dry_run else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def sent_write_options(query: Query) -> dict[str, Any]:
    """Return the options of a create, update or patch as fields of a CreateOptions or UpdateOptions object."""
    fields: dict[str, Any] = {
        "dryRun": ["All"] if query.get("dryRun") else None,
        "fieldManager": _first(query, "fieldManager"),
        "fieldValidation": _first(query, "fieldValidation"),
    }
    return {name: value for name, value in fields.items() if value}


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


def manager_of(field_manager: str, user_agent: str) -> str:
    """Return the field manager of a request: the option, or else the User-Agent up to its first slash.

    Cut to 128 bytes, without unprintable characters; ``unknown`` if the result is empty.
    """
    if field_manager:
        return field_manager
    prefix = user_agent.partition("/")[0]
    if prefix.isascii() and prefix.isprintable() and 0 < len(prefix) <= MAX_FIELD_MANAGER:
        return prefix
    kept = bytearray()
    for character in prefix:
        encoded = character.encode()
        if len(kept) + len(encoded) > MAX_FIELD_MANAGER:
            break
        if character.isprintable():
            kept += encoded
    return kept.decode() or "unknown"


def parse_create_options(query: Query) -> CreateOptions:
    """Parse the options of POST. Like all functions here: 400 for malformed, 422 for unsupported values."""
    dry_run, manager, validation = _write_values(query, "CreateOptions")
    return CreateOptions(dry_run=dry_run, field_manager=manager, field_validation=validation)


def parse_update_options(query: Query) -> UpdateOptions:
    """Parse the options of PUT."""
    dry_run, manager, validation = _write_values(query, "UpdateOptions")
    return UpdateOptions(dry_run=dry_run, field_manager=manager, field_validation=validation)


def parse_patch_options(query: Query, content_type: str) -> PatchOptions:
    """Parse the options of PATCH. ``content_type`` has no parameters."""
    force = boolean(query, "force")
    causes: list[Cause] = []
    if content_type in APPLY_PATCHES:
        if not _first(query, "fieldManager"):
            causes.append(required("fieldManager", "is required for apply patch"))
    elif force is not None:
        causes.append(forbidden("force", "may not be specified for non-apply patch"))
    dry_run, manager, validation = _write_values(query, "PatchOptions", causes)
    return PatchOptions(dry_run=dry_run, field_manager=manager, field_validation=validation, force=force)


def _write_values(query: Query, kind: str, causes: Sequence[Cause] = ()) -> tuple[bool, str, str]:
    if not query and not causes:
        return False, "", "Warn"
    found = list(causes)
    manager = _first(query, "fieldManager")
    found += validate_field_manager(manager, "fieldManager")
    dry_run = list(query.get("dryRun", ()))
    found += _validate_dry_run(dry_run)
    validation = _first(query, "fieldValidation")
    if validation not in FIELD_VALIDATIONS:
        found.append(not_supported("fieldValidation", validation, FIELD_VALIDATIONS))
    _raise(kind, found)
    return bool(dry_run), manager, validation or "Warn"


def _validate_dry_run(values: Sequence[str]) -> list[Cause]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", list(values), ("All",))]


def _raise(kind: str, causes: Sequence[Cause]) -> None:
    if causes:
        raise status.invalid(OPTIONS_GROUP, kind, "", causes)


def parse_delete_options(query: Query, body: Mapping[str, Any] | None = None) -> DeleteOptions:
    """Parse the options of DELETE: from the body if there is one, otherwise from the query.

    ``body`` is a decoded DeleteOptions with checked types (schema/check.py).
    """
    values = _delete_values_of_query(query) if body is None else dict(body)
    _raise("DeleteOptions", _delete_problems(values))
    preconditions = values.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(values.get("dryRun")),
        grace_period_seconds=values.get("gracePeriodSeconds"),
        propagation_policy=values.get("propagationPolicy"),
        orphan_dependents=values.get("orphanDependents"),
        precondition_uid=preconditions.get("uid"),
        precondition_resource_version=preconditions.get("resourceVersion"),
    )


UNSAFE: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"
"""The option to delete an object that cannot be decoded (KEP-3926). It needs the gate UNSAFE_GATE."""
UNSAFE_GATE: Final = "AllowUnsafeMalformedObjectDeletion"


def is_unsafe(query: Query, body: Mapping[str, Any] | None, *, collection: bool) -> bool:
    """Tell whether a DELETE has the option UNSAFE. StatusError 422: it does not go together with the others."""
    values = _delete_values_of_query(query) | {UNSAFE: boolean(query, UNSAFE)} if body is None else body
    if not values.get(UNSAFE):
        return False
    names = ("propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions")
    found = [f"cannot be set together with .{name}" for name in names if values.get(name) is not None]
    _raise("DeleteOptions", [*_delete_problems(values), *(invalid_value(UNSAFE, True, text) for text in found)])
    if collection:
        detail = "is not allowed with DELETECOLLECTION, try again after removing the option"
        _raise("DeleteOptions", [invalid_value(UNSAFE, True, detail)])
    return True


def parse_later_delete_options(values: Mapping[str, Any]) -> tuple[DeleteOptions, StatusError | None]:
    """Return the options of a deletion that follows other steps, and their 422, which comes after these steps.

    Options with a 422 contain only what the other steps need: the preconditions and the dry run.
    """
    try:
        return parse_delete_options({}, values), None
    except StatusError as error:
        options = parse_delete_options({}, {"preconditions": values.get("preconditions")})
        return replace(options, dry_run=bool(values.get("dryRun"))), error


def _delete_problems(values: Mapping[str, Any]) -> list[Cause]:
    policy = values.get("propagationPolicy")
    orphan = values.get("orphanDependents")
    causes: list[Cause] = []
    if orphan is not None and policy is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid_value("propagationPolicy", policy, detail))
    if policy is not None and policy not in PROPAGATION_POLICIES:
        causes.append(not_supported("propagationPolicy", policy, (*PROPAGATION_POLICIES, "nil")))
    return causes + _validate_dry_run(values.get("dryRun") or ())


def _delete_values_of_query(query: Query) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if query.get("gracePeriodSeconds"):
        values["gracePeriodSeconds"] = integer(query, "gracePeriodSeconds")
    if query.get("propagationPolicy"):
        values["propagationPolicy"] = _first(query, "propagationPolicy")
    orphan = boolean(query, "orphanDependents")
    if orphan is not None:
        values["orphanDependents"] = orphan
    preconditions = {name: _first(query, name) for name in ("uid", "resourceVersion") if _first(query, name)}
    if preconditions:
        values["preconditions"] = preconditions
    values["dryRun"] = list(query.get("dryRun", ()))
    return values


def refuse_dry_run(given: Sequence[str]) -> None:
    """Reject (400) a dry run of a connection: nothing is stored in it. ``given``: the parameters of that name."""
    if given:
        raise status.bad_request("dryRun is not supported")


def parse_get_options(query: Query) -> GetOptions:
    """Parse the options of a get. The reader checks the revision (``parse_resource_version``)."""
    return GetOptions(resource_version=_first(query, "resourceVersion"))


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
        label_selector=_first(query, "labelSelector"),
        field_selector=_first(query, "fieldSelector"),
        timeout_seconds=integer(query, "timeoutSeconds"),  # before the limit: the first malformed value is reported
        limit=max(integer(query, "limit") or 0, 0),
        continue_=_first(query, "continue"),
        resource_version=_first(query, "resourceVersion"),
        resource_version_match=_first(query, "resourceVersionMatch"),
        watch=watching,
        allow_watch_bookmarks=bool(boolean(query, "allowWatchBookmarks")),
        send_initial_events=boolean(query, "sendInitialEvents"),
    )
    if check_selectors is not None:
        check_selectors(options)
    if watching and watch_list:
        options = _with_initial_events(options)
    causes = _validate_watch(options, watch_list=watch_list) if watching else _validate_list(options)
    _raise("ListOptions", causes)
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


def parse_resource_version(text: str) -> int:
    """Return the requested revision, 0 for none. ValueError with Kubernetes' text if it is not a number.

    A list answers the text as 400 after ``invalid resource version: ``, a get and a watch as 500.
    """
    if text in ("", "0"):
        return 0
    problem = "invalid syntax"
    if text.isascii() and text.isdigit():
        number = _bounded(text)
        if number is not None and number < 2**64:
            return number
        problem = "value out of range"
    quoted = go_quote(text)
    raise ValueError(f"resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}")


def go_seconds(seconds: int) -> float:
    """Return a number of seconds as Go's Duration holds it: beyond 292 years it overflows, into the past perhaps."""
    return ((seconds * 10**9 + 2**63) % 2**64 - 2**63) / 10**9


def _first(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def integer(query: Query, name: str) -> int | None:
    """Return an integer of 64 bits of the query; None if it is absent. StatusError 400 in the words of Go's strconv."""
    values = query.get(name)
    if not values:
        return None
    text = values[0]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise status.bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    number = _bounded(digits)
    if number is not None and text[0] == "-":
        number = -number
    if number is None or not -(2**63) <= number < 2**63:
        raise status.bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return number


def _bounded(digits: str) -> int | None:
    """Return the number of decimal digits, None for one that is too large for 64 bits in any case."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 20 else None


def boolean(query: Query, name: str) -> bool | None:
    """Return a boolean of the query as Kubernetes reads it: true if present and neither false nor 0."""
    values = query.get(name)
    if not values:
        return None
    return values[0].lower() not in ("false", "0")
