"""Options of gets and writes, from the query string or the body: parsing and validation with Kubernetes' messages.

Lives here: query → frozen record, or Kubernetes' StatusError. Not here: the effect of the options.

As in Kubernetes, only dryRun takes several values, and unknown parameters are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value, not_supported, required
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.metadata import MAX_FIELD_MANAGER, validate_field_manager

# -- queries -----------------------------------------------------------------------------------------------------------
#
# Values of a query string, read as Kubernetes does: the first one of a repeated parameter counts.
#
# A query is the result of ``urllib.parse.parse_qs(text, keep_blank_values=True)``.


Query = Mapping[str, Sequence[str]]


def first(query: Query, name: str) -> str:
    """Return the text of a parameter, "" if it is absent."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOptions:
    """Options of a get."""

    resource_version: str = ""


def parse_get_options(query: Query) -> GetOptions:
    """Parse the options of a get. The reader checks the revision (``parse_resource_version``)."""
    if boolean(query, "export"):
        raise status.bad_request("the export parameter, deprecated since v1.14, is no longer supported")
    return GetOptions(resource_version=first(query, "resourceVersion"))


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
        "fieldManager": first(query, "fieldManager"),
        "fieldValidation": first(query, "fieldValidation"),
    }
    return {name: value for name, value in fields.items() if value}


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
        if not first(query, "fieldManager"):
            causes.append(required("fieldManager", "is required for apply patch"))
    elif force is not None:
        causes.append(forbidden("force", "may not be specified for non-apply patch"))
    dry_run, manager, validation = _write_values(query, "PatchOptions", causes)
    return PatchOptions(dry_run=dry_run, field_manager=manager, field_validation=validation, force=force)


def _write_values(query: Query, kind: str, causes: Sequence[Cause] = ()) -> tuple[bool, str, str]:
    if not query and not causes:
        return False, "", "Warn"
    found = list(causes)
    manager = first(query, "fieldManager")
    found += validate_field_manager(manager, "fieldManager")
    dry_run = list(query.get("dryRun", ()))
    found += _validate_dry_run(dry_run)
    validation = first(query, "fieldValidation")
    if validation not in FIELD_VALIDATIONS:
        found.append(not_supported("fieldValidation", validation, FIELD_VALIDATIONS))
    raise_invalid(kind, found)
    return bool(dry_run), manager, validation or "Warn"


def _validate_dry_run(values: Sequence[str]) -> list[Cause]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", list(values), ("All",))]


def raise_invalid(kind: str, causes: Sequence[Cause]) -> None:
    """Raise 422 for the options of this kind if there are causes."""
    if causes:
        raise status.invalid(OPTIONS_GROUP, kind, "", causes)


def parse_delete_options(query: Query, body: Mapping[str, Any] | None = None) -> DeleteOptions:
    """Parse the options of DELETE: from the body if there is one, otherwise from the query.

    ``body`` is a decoded DeleteOptions with checked types (schema/check.py).
    """
    values = _delete_values_of_query(query) if body is None else dict(body)
    raise_invalid("DeleteOptions", _delete_problems(values))
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
    raise_invalid("DeleteOptions", [*_delete_problems(values), *(invalid_value(UNSAFE, True, text) for text in found)])
    if collection:
        detail = "is not allowed with DELETECOLLECTION, try again after removing the option"
        raise_invalid("DeleteOptions", [invalid_value(UNSAFE, True, detail)])
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
        values["propagationPolicy"] = first(query, "propagationPolicy")
    orphan = boolean(query, "orphanDependents")
    if orphan is not None:
        values["orphanDependents"] = orphan
    preconditions = {name: first(query, name) for name in ("uid", "resourceVersion") if first(query, name)}
    if preconditions:
        values["preconditions"] = preconditions
    values["dryRun"] = list(query.get("dryRun", ()))
    return values


def refuse_dry_run(given: Sequence[str]) -> None:
    """Reject (400) a dry run of a connection: nothing is stored in it. ``given``: the parameters of that name."""
    if given:
        raise status.bad_request("dryRun is not supported")
