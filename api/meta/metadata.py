"""Rules of ObjectMeta for every kind: system fields, names, allowed changes.

After apiserver's ``registry/rest`` and apimachinery's ``api/validation``. Not here: the order of the rules
(pipeline/pipeline.py), rules of one kind (strategy.py), deletion (deletion.py), managed fields.

Every function takes metadata checked by schema/check.py: correct types, no nulls, no empty values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import (
    Cause,
    forbidden,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.values import names

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of a generated name's suffix: no vowels, and none that look alike."""

NAME_SUFFIX_LENGTH: Final = 5
MAX_GENERATED_BASE: Final = 63 - NAME_SUFFIX_LENGTH
"""A longer generateName is cut, so that the generated name is a DNS label."""

MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object, keys and values."""

STANDARD_FINALIZERS: Final = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
"""Finalizers that need no domain."""

IMMUTABLE: Final = "field is immutable"

_UNMARKED: Final = frozenset(("uid", "creationTimestamp", "selfLink"))
_SYSTEM_FIELDS: Final = _UNMARKED | {"deletionTimestamp", "deletionGracePeriodSeconds"}
"""System fields, without and with the marks of a deletion."""
_IMMUTABLE_FIELDS: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OWNER_ORDER: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")

NAMESPACE_MISMATCH: Final = "the namespace of the provided object does not match the namespace sent on the request"


def drop_system_fields(metadata: dict[str, Any], *, deletion: bool = True) -> None:
    """Drop the client's values of system fields. A creation by PUT or apply owns the marks of a ``deletion`` first."""
    for name in metadata.keys() & (_SYSTEM_FIELDS if deletion else _UNMARKED):
        del metadata[name]


def fill_on_create(metadata: dict[str, Any], *, now: str, uid: str, name_suffix: str) -> None:
    """Set the system fields of an object to be created."""
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    generate_name(metadata, name_suffix=name_suffix)


def generate_name(metadata: dict[str, Any], *, name_suffix: str) -> None:
    """Set the name from generateName, if the object has none. An empty suffix leaves generateName as it is."""
    base = metadata.get("generateName")
    if base and not metadata.get("name"):
        if "labels" in metadata:
            # Kubernetes copies an object without a name: its labels are not those of its pods any more (see Job).
            metadata["labels"] = dict(metadata["labels"])
        metadata["name"] = base[:MAX_GENERATED_BASE] + name_suffix if name_suffix else base


def keep_on_update(metadata: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Restore the fields that no update changes or removes."""
    metadata.pop("selfLink", None)
    metadata.setdefault("uid", old.get("uid", ""))
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in old:
            metadata[name] = old[name]
    if "deletionGracePeriodSeconds" in old:
        metadata.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])


def keep_generation(metadata: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Restore the generation: requests cannot set it on an existing object."""
    if "generation" in old:
        metadata["generation"] = old["generation"]
    else:
        metadata.pop("generation", None)


def match_name_syntax(name: str) -> None:
    """Reject a name that no stored object can have: 400 (registry/generic/registry/store.go, NamespaceKeyFunc)."""
    if not name:
        raise status.bad_request("Name parameter required.")
    if problems := names.path_segment(name):
        raise status.bad_request(f"Name parameter invalid: {go_quote(name)}: {';'.join(problems)}")


def match_namespace(metadata: dict[str, Any], *, namespaced: bool, namespace: str) -> None:
    """Fill in the URL's namespace, or reject (400) an object with another one. Clear it without one in the URL."""
    wanted = namespace if namespaced else ""
    if not wanted:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = wanted
    elif metadata["namespace"] != wanted:
        raise status.bad_request(NAMESPACE_MISMATCH)


def match_name(metadata: Mapping[str, Any], name: str) -> None:
    """Reject (400) an object without a name, or with a name other than the URL's."""
    given = metadata.get("name", "")
    if not given:
        raise status.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def parse_revision(metadata: Mapping[str, Any]) -> int:
    """Return metadata.resourceVersion as a number, 0 if absent. 500 if it is not a revision."""
    text = metadata.get("resourceVersion", "")
    if text in ("", "0"):
        return 0
    if not (text.isascii() and text.isdigit()):
        raise status.unknown(f"strconv.ParseUint: parsing {go_quote(text)}: invalid syntax")
    number = int(text)
    if number >= 2**64:
        raise status.unknown(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return number


def validate(
    metadata: Mapping[str, Any],
    *,
    namespaced: bool,
    name_check: names.NameCheck,
    kube: bool = True,
    field: str = "metadata",
) -> list[Cause]:
    """Return the problems of an object's metadata. ``kube``: finalizers must be qualified or standard ones."""
    causes: list[Cause] = []
    generate = metadata.get("generateName", "")
    if generate:
        causes += [invalid_value(f"{field}.generateName", generate, problem) for problem in name_check(generate, True)]
    name = metadata.get("name", "")
    if not name:
        causes.append(required(f"{field}.name", "name or generateName is required"))
    elif problems := name_check(name, False):
        causes += [invalid_value(f"{field}.name", name, problem) for problem in problems]
    causes += _validate_namespace(metadata.get("namespace", ""), namespaced=namespaced, field=field)
    generation = metadata.get("generation", 0)
    if generation < 0:
        causes.append(invalid_value(f"{field}.generation", generation, "must be greater than or equal to 0"))
    causes += _validate_marks(metadata, field)
    finalizers = metadata.get("finalizers")
    if finalizers:
        causes += validate_finalizers(finalizers, f"{field}.finalizers")
    if "managedFields" in metadata:
        causes += validate_managed_fields(metadata["managedFields"], field)
    if kube and finalizers:
        causes += validate_kube_finalizers(finalizers, f"{field}.finalizers")
    return causes


def validate_update(
    metadata: Mapping[str, Any], old: Mapping[str, Any], *, kube: bool = True, field: str = "metadata"
) -> list[Cause]:
    """Return the problems of a change of metadata."""
    causes: list[Cause] = []
    if "deletionTimestamp" in old:
        extra = sorted(set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())))
        if extra:
            listed = "[]string{" + ", ".join(map(go_quote, extra)) + "}"
            causes.append(
                forbidden(
                    f"{field}.finalizers",
                    f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}",
                )
            )
    if metadata.get("generation", 0) < old.get("generation", 0):
        causes.append(invalid_value(f"{field}.generation", metadata.get("generation", 0), "must not be decremented"))
    for name in _IMMUTABLE_FIELDS:
        if metadata.get(name) != old.get(name):
            causes.append(invalid_value(f"{field}.{name}", metadata.get(name), IMMUTABLE))
    causes += _validate_marks(metadata, field)
    causes += validate_managed_fields(metadata.get("managedFields", ()), field)
    if kube and "finalizers" in metadata:
        causes += validate_kube_finalizers(metadata["finalizers"], f"{field}.finalizers")
    return causes


def _validate_namespace(namespace: str, *, namespaced: bool, field: str) -> Iterable[Cause]:
    if not namespaced:
        return [forbidden(f"{field}.namespace", "not allowed on this type")] if namespace else ()
    if not namespace:
        return [required(f"{field}.namespace")]
    problems = names.dns_label(namespace)
    return [invalid_value(f"{field}.namespace", namespace, problem) for problem in problems] if problems else ()


def _validate_marks(metadata: Mapping[str, Any], field: str) -> list[Cause]:
    """Return the problems of labels, annotations and owners, for new objects and for changes."""
    causes: list[Cause] = []
    if "labels" in metadata:
        causes += validate_labels(metadata["labels"], f"{field}.labels")
    if "annotations" in metadata:
        causes += validate_annotations(metadata["annotations"], f"{field}.annotations")
    if "ownerReferences" in metadata:
        causes += _validate_owners(metadata["ownerReferences"], f"{field}.ownerReferences")
    return causes


def validate_labels(labels: Mapping[str, str], field: str) -> list[Cause]:
    """Return the problems of labels."""
    causes: list[Cause] = []
    for key, value in labels.items():
        if problems := names.qualified_name(key):
            causes += [invalid_value(field, key, problem) for problem in problems]
        if problems := names.label_value(value):
            causes += [invalid_value(field, value, problem) for problem in problems]
    return causes


def validate_annotations(annotations: Mapping[str, str], field: str) -> list[Cause]:
    """Return the problems of annotations: keys are qualified names, in either case; the total size is limited."""
    causes: list[Cause] = []
    size = 0
    for key, value in annotations.items():
        if problems := names.qualified_name(key.lower()):
            causes += [invalid_value(field, key, problem) for problem in problems]
        size += len(key) + len(value)
        if not value.isascii():
            size += len(value.encode()) - len(value)
    if size > MAX_ANNOTATIONS:
        causes.append(too_long(field, MAX_ANNOTATIONS))
    return causes


def _validate_owners(owners: Sequence[Mapping[str, Any]], field: str) -> list[Cause]:
    causes: list[Cause] = []
    first, listed = "", [_ordered_owner(each) for each in owners]
    for index, owner in enumerate(owners):
        causes += _validate_owner(owner, f"{field}[{index}]")
        if owner.get("controller"):
            current = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if first:
                listed = listed or [_ordered_owner(each) for each in owners]
                causes.append(
                    invalid_value(
                        field,
                        listed,
                        'Only one reference can have Controller set to true. Found "true" in references for '
                        f"{first} and {current}",
                    )
                )
            else:
                first = current
    return causes


def drop_repeated_owners(metadata: dict[str, Any]) -> list[str]:
    """Keep one of equal owner references. Return the uids of those left out."""
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) < 2:
        return []
    kept: dict[tuple[Any, ...], Any] = {}
    repeated: list[str] = []
    for owner in owners:
        key = tuple(map(owner.get, _OWNER_ORDER))
        if key in kept:
            repeated.append(owner.get("uid", ""))
        else:
            kept[key] = owner
    if repeated:
        metadata["ownerReferences"] = list(kept.values())
    return repeated


def repeated_owners_warning(uids: Sequence[str], *, after_admission: bool = False) -> str:
    """Return the warning about references that drop_repeated_owners left out."""
    when = " after mutating admission happens" if after_admission else ""
    return (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and "
        "may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
        + ", ".join(uids)
    )


def _validate_owner(owner: Mapping[str, Any], field: str) -> list[Cause]:
    causes: list[Cause] = []
    api_version = owner.get("apiVersion", "")
    group, _, version = api_version.rpartition("/")
    if not api_version:
        causes.append(required(f"{field}.apiVersion", "must not be empty"))
    elif not version or "/" in group:
        causes.append(invalid_value(f"{field}.apiVersion", api_version, "must be <group>/<version> or <version>"))
    for name in ("kind", "name", "uid"):
        if not owner.get(name):
            causes.append(required(f"{field}.{name}", "must not be empty"))
    if (group, version, owner.get("kind")) == ("", "v1", "Event"):
        # Events expire after an hour: no object may depend on them.
        causes.append(invalid_value(field, _ordered_owner(owner), "/v1, Kind=Event is disallowed from being an owner"))
    return causes


def _ordered_owner(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return an owner reference with its fields in Kubernetes' order, for messages."""
    return {name: owner[name] for name in _OWNER_ORDER if name in owner}


def validate_finalizers(finalizers: Sequence[str], field: str) -> list[Cause]:
    """Return the problems of finalizers' names."""
    causes: list[Cause] = []
    for finalizer in finalizers:
        causes += [invalid_value(field, finalizer, problem) for problem in names.qualified_name(finalizer)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        causes.append(
            invalid_value(field, list(finalizers), "finalizer orphan and foregroundDeletion cannot be both set")
        )
    return causes


def validate_kube_finalizers(finalizers: Sequence[str], field: str) -> list[Cause]:
    """Return the finalizers that are neither standard ones nor qualified."""
    return [
        invalid_value(
            f"{field}[{index}]", finalizer, "name is neither a standard finalizer name nor is it fully qualified"
        )
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS
    ]


OPERATIONS: Final = ("Apply", "Update")


def validate_managed_fields(entries: Sequence[Mapping[str, Any]], field: str) -> list[Cause]:
    """Check the entries of managedFields, as far as no clock or type is needed. ``field``: the path of the metadata."""
    causes: list[Cause] = []
    for index, entry in enumerate(entries):
        operation, manager = entry.get("operation", ""), entry.get("manager", "")
        known = operation in OPERATIONS and entry.get("fieldsType") == "FieldsV1"
        if known and not entry.get("subresource") and not validate_field_manager(manager, ""):
            continue  # as nearly all are: this needs no path
        path = f"{field}.managedFields[{index}]"
        if not operation:
            causes.append(required(f"{path}.operation", "must not be empty"))
        elif operation not in OPERATIONS:
            causes.append(not_supported(f"{path}.operation", operation, OPERATIONS))
        if entry.get("fieldsType", "FieldsV1") not in ("", "FieldsV1"):
            causes.append(invalid_value(f"{path}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        causes += validate_field_manager(manager, f"{path}.manager")
        if len(entry.get("subresource", "")) > MAX_SUBRESOURCE:
            causes.append(too_long(f"{path}.subresource", MAX_SUBRESOURCE))
    return causes


MAX_FIELD_MANAGER: Final = 128
"""Bytes of a field manager's name."""

MAX_SUBRESOURCE: Final = 256


def validate_field_manager(manager: str, field: str) -> list[Cause]:
    """Return the problems of a field manager's name."""
    if manager.isascii() and manager.isprintable() and len(manager) <= MAX_FIELD_MANAGER:
        return []
    causes: list[Cause] = []
    if len(manager.encode()) > MAX_FIELD_MANAGER:
        causes.append(too_long(field, MAX_FIELD_MANAGER))
    if not manager.isprintable():
        position = 0
        for character in manager:
            if not character.isprintable():
                detail = f"invalid character {_unicode_name(character)} (at position {position})"
                causes.append(invalid_value(field, manager, detail))
            position += len(character.encode())
    return causes


def _unicode_name(character: str) -> str:
    # Go's %#U adds the character itself only when it can be printed, which these cannot.
    return f"U+{ord(character):04X}"
