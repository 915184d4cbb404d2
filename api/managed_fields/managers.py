"""Owners of fields: ``metadata.managedFields``, after apimachinery's ``util/managedfields``.

Lives here: the effect of a create, update or patch (operation Update) on the entries. Not here: the field sets
(field_sets.py) and server-side apply, which assigns owners by intent instead of by difference.

The writer becomes the only owner of the fields it added or changed; a removed field has no owner. An entry is one
(manager, operation, apiVersion, subresource); its time changes only when it gains fields. Example: manager ``b``
changes ``data.k``, which ``a`` had created along with ``data.l``:

    a: {f:data: {.: {}, f:k: {}, f:l: {}}}   ->   a: {f:data: {.: {}, f:l: {}}},  b: {f:data: {f:k: {}}}

Invariant: an object that was created without any tracked field never gets entries by an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.managed_fields import field_sets
from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.managed_fields.path_elements import NoPathElement
from kubechronicle.api.schema.types import ObjectType

MAX_UPDATE_MANAGERS: Final = 10
"""Separate entries of operation Update; older ones are merged into one per apiVersion."""

ANCIENT: Final = "ancient-changes"

Paths = tuple[tuple[str, ...], ...]

_IDENTITY: Final = ("manager", "operation", "apiVersion", "subresource")

UNTRACKED: Final = frozenset(("f:apiVersion", "f:kind"))
UNTRACKED_METADATA: Final = frozenset(
    name if name == "." else f"f:{name}"
    for name in (
        ".",
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
"""Fields without owners: they name the object, or belong to the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The key of an entry. ``now`` is the time of the write in whole seconds, empty if it is not recorded."""

    manager: str
    api_version: str
    subresource: str = ""
    now: str


Entry = dict[str, Any]
ManagerKey = tuple[str, str, str, str]
"""(manager, operation, apiVersion, subresource); no version for operation Apply."""
Versions = Callable[[dict[str, Any], str], tuple[dict[str, Any], ObjectType] | None]
"""(object, apiVersion) → the object in that version and its type; None for an unknown version."""


def track(
    kind: ObjectType,
    old: Mapping[str, Any] | None,
    new: dict[str, Any],
    *,
    writer: Writer,
    reset: Paths = (),
    versions: Versions | None = None,
    is_version: Callable[[str], bool] | None = None,
) -> None:
    """Set ``new``'s managedFields to their state after this write. ``old`` is None on create.

    ``reset``: the fields that this endpoint ignores, such as status on the main resource.
    ``versions``: converts the change for entries in other versions of the kind, which lose the changed fields.
    ``is_version``: tells whether the kind has an apiVersion; entries in unknown ones are dropped.
    """
    metadata = new["metadata"]
    given = metadata.pop("managedFields", None)
    if old is None and not given:
        fields = _of_new(new, kind, reset)
        if fields:
            metadata["managedFields"] = [_entry(writer, fields)]
        return
    held = list(old["metadata"].get("managedFields", ())) if old is not None else []
    entries = distinct(_entries_to_start_from(given, held, subresource=writer.subresource))
    if old is not None and not entries:
        return
    if is_version is not None:
        own = writer.api_version
        entries = [each for each in entries if (found := each.get("apiVersion", "")) == own or is_version(found)]
    try:
        changed, removed = field_sets.compare(kind.zero() if old is None else _plain(old), new, kind)
    except NoPathElement:
        if held:  # those of before rather than wrong ones
            metadata["managedFields"] = held
        return
    changed = field_sets.without_paths(strip_untracked(changed), reset)
    if not entries:
        if changed:
            metadata["managedFields"] = [_entry(writer, changed)]
        return
    removed = field_sets.without_paths(removed, reset)
    result = _take(entries, changed, removed, writer, _elsewhere(entries, old, new, writer, reset, versions))
    if result:
        metadata["managedFields"] = result


def _of_new(new: dict[str, Any], kind: ObjectType, reset: Paths) -> FieldSet:
    """Return the fields that the creator of an object owns; {} if none, or if they have no names."""
    try:
        changed, _ = field_sets.compare(kind.zero(), new, kind)
    except NoPathElement:
        return {}  # no entries rather than wrong ones
    return field_sets.without_paths(strip_untracked(changed), reset)


Differences = Mapping[str, tuple[FieldSet, FieldSet]]
"""apiVersion -> (changed, removed)."""


def _elsewhere(
    entries: list[Entry],
    old: Mapping[str, Any] | None,
    new: dict[str, Any],
    writer: Writer,
    reset: Paths,
    versions: Versions | None,
) -> Differences:
    """Return the changes in each other version that entries are in."""
    others = {entry.get("apiVersion", "") for entry in entries} - {writer.api_version}
    if versions is None or old is None or not others:
        return {}
    found: dict[str, tuple[FieldSet, FieldSet]] = {}
    for api_version in others:
        before, after = versions(_plain(old), api_version), versions(new, api_version)
        if before is None or after is None:
            continue
        try:
            changed, removed = field_sets.compare(before[0], after[0], after[1])
        except NoPathElement:
            continue
        changed = field_sets.without_paths(strip_untracked(changed), reset)
        found[api_version] = (changed, field_sets.without_paths(removed, reset))
    return found


def _plain(old: Mapping[str, Any]) -> dict[str, Any]:
    return old if isinstance(old, dict) else dict(old)


def _entries_to_start_from(given: list[Entry] | None, held: list[Entry], *, subresource: str) -> list[Entry]:
    """Return the client's entries if it may set them and they are readable, otherwise the stored object's.

    One empty entry, ``[{}]``, resets; bodies.py makes one of an empty list.
    """
    if subresource or not given or given == held:
        return held
    if given == [{}]:
        return []
    return given if all(map(_readable, given)) else held


def key_of(entry: Entry) -> ManagerKey:
    """Return the key of an entry."""
    operation = entry["operation"]
    version = "" if operation == "Apply" else entry.get("apiVersion", "")
    return entry.get("manager", ""), operation, version, entry.get("subresource", "")


def distinct(entries: list[Entry]) -> list[Entry]:
    """Return the entries without those that a later one of the same key replaces."""
    if len(entries) < 2:
        return entries
    keyed = {key_of(entry): entry for entry in entries}
    return entries if len(keyed) == len(entries) else list(keyed.values())


def problem(entries: list[Entry]) -> str:
    """Return Kubernetes' reason why entries are unusable; "" if they are not."""
    for index, entry in enumerate(entries):
        form = entry.get("fieldsType")
        if entry.get("operation") not in ("Apply", "Update"):
            return "operation must be `Apply` or `Update`"
        if not entry.get("apiVersion"):
            return "apiVersion must not be empty"
        if not form:
            return f"missing fieldsType in managed fields entry {index}"
        if form != "FieldsV1":
            return f"invalid fieldsType {go_quote(form)} in managed fields entry {index}"
        if not _readable(entry):
            return "error decoding versioned set"
    return ""


def _readable(entry: Entry) -> bool:
    return (
        entry.get("operation") in ("Apply", "Update")
        and bool(entry.get("apiVersion"))
        and entry.get("fieldsType") == "FieldsV1"
        and _well_formed(entry.get("fieldsV1") or {})
    )


def _well_formed(fields: Any) -> bool:
    if not isinstance(fields, dict):
        return False
    for name, below in fields.items():
        if not (name[:2] == "f:" or name == "." or _is_element(name)):
            return False
        if below != {} and not _well_formed(below):
            return False
    return True


def _is_element(name: str) -> bool:
    form, rest = name[:2], name[2:]
    if form in ("k:", "v:"):
        try:
            value = orjson.loads(rest)
        except orjson.JSONDecodeError:
            return False
        return form == "v:" or (isinstance(value, dict) and bool(value))
    return name == "." or form == "f:" or (form == "i:" and rest.isascii() and rest.isdigit())


def _take(
    entries: list[Entry], changed: FieldSet, removed: FieldSet, writer: Writer, elsewhere: Differences
) -> list[Entry]:
    result: list[Entry] = []
    own: Entry | None = None
    for entry in entries:
        fields = entry.get("fieldsV1") or {}
        mine = (
            entry.get("manager", "") == writer.manager
            and entry["operation"] == "Update"
            and entry.get("apiVersion") == writer.api_version
            and entry.get("subresource", "") == writer.subresource
        )
        taken, vanished = elsewhere.get(entry.get("apiVersion", ""), (changed, removed))
        left = field_sets.difference(fields, vanished)
        # Only the writer's set is cleaned of fields without owners: others keep what a client once wrote there.
        left = strip_untracked(field_sets.union(left, changed)) if mine else field_sets.difference(left, taken)
        if not left:
            continue
        kept = entry if left == fields else {**entry, "fieldsV1": left}
        if mine:
            own = kept = {**kept, **_time(writer)} if changed else kept
        result.append(kept)
    if own is None and changed:
        result.append(_entry(writer, changed))
    return ordered(_capped(result))


def strip_untracked(fields: FieldSet) -> FieldSet:
    """Return the set without the fields that have no owners."""
    inner = fields.get("f:metadata")
    if inner is None and UNTRACKED.isdisjoint(fields):
        return fields
    kept = {element: node for element, node in fields.items() if element not in UNTRACKED}
    if inner == {}:
        del kept["f:metadata"]
    elif inner and not UNTRACKED_METADATA.isdisjoint(inner):
        left = {element: node for element, node in inner.items() if element not in UNTRACKED_METADATA}
        if left:
            kept["f:metadata"] = left
        else:
            del kept["f:metadata"]
    return kept


def _time(writer: Writer) -> Entry:
    return {"time": writer.now} if writer.now else {}


def _entry(writer: Writer, fields: FieldSet) -> Entry:
    entry: Entry = {
        "manager": writer.manager,
        "operation": "Update",
        "apiVersion": writer.api_version,
        **_time(writer),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry


def _sort_key(entry: Entry) -> tuple[str, str, str, str, str]:
    return (
        entry["operation"],
        entry.get("time") or "",
        entry.get("manager", ""),
        entry.get("apiVersion", ""),
        entry.get("subresource", ""),
    )


def ordered(entries: list[Entry]) -> list[Entry]:
    """Return entries in the order in which they are stored."""
    return sorted(entries, key=_sort_key) if len(entries) > 1 else entries


def _capped(entries: list[Entry]) -> list[Entry]:
    """Merge the oldest Update entries while there are more than MAX_UPDATE_MANAGERS."""
    updates = [entry for entry in entries if entry["operation"] == "Update"]
    surplus = len(updates) - MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return entries
    updates.sort(key=_sort_key)
    merged: dict[str, Entry] = {}
    rest: list[Entry] = []
    for entry in updates:
        version = entry.get("apiVersion", "")
        bucket = merged.get(version)
        if bucket is None and entry.get("manager") == ANCIENT:
            merged[version] = entry
        elif surplus > 0:
            fields = field_sets.union((bucket or {}).get("fieldsV1") or {}, entry.get("fieldsV1") or {})
            merged[version] = {**entry, "manager": ANCIENT, "fieldsV1": fields}
            merged[version].pop("subresource", None)
            if bucket is not None:
                surplus -= 1
        else:
            rest.append(entry)
    applied = (entry for entry in entries if entry["operation"] != "Update")
    return [*applied, *merged.values(), *rest]


def equal_but_times(one: Iterable[Entry], other: Iterable[Entry]) -> bool:
    """Return True if two lists of entries differ at most in their times, and so in their order, which follows them."""
    return _without_times(one) == _without_times(other)


def _without_times(entries: Iterable[Entry]) -> list[Entry]:
    stripped = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
    return sorted(stripped, key=lambda entry: [str(entry.get(name, "")) for name in _IDENTITY])
