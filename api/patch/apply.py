"""Server-side apply: the merge of a configuration into an object, and the owners afterwards.

Pure, for one version of a kind at a time. pipeline/server_side_apply.py handles other versions, the last-applied
annotation and the body. After structured-merge-diff's ``merge.Updater``:

    1. merge the configuration into the live object
    2. remove fields that this manager applied before and no longer applies, unless others own them
    3. report changed fields of other managers as conflicts, or take them with ``force``
    4. the manager owns exactly the fields in its configuration

Entries are those of metadata.managedFields. An applying manager has one entry per (manager, subresource), for all
versions; an entry of operation Update is also identified by its version.

Invariant: applying owned fields with their present values changes neither object nor entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from kubechronicle.api.errors.field_errors import Cause, go_quote
from kubechronicle.api.managed_fields import field_sets, managers
from kubechronicle.api.managed_fields.field_paths import paths
from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.managed_fields.managers import Entry, ManagerKey, Paths, Writer, key_of
from kubechronicle.api.patch import structured_merge
from kubechronicle.api.patch.structured_merge import changes_within, with_named_fields
from kubechronicle.api.patch.typed_values import field_set
from kubechronicle.api.schema.equality import unchanged
from kubechronicle.api.schema.types import ObjectType
from kubechronicle.api.values.objects import Object

Typed = tuple[Object, ObjectType]
Versions = Callable[[Object, str], Typed | None]
"""(object, apiVersion) → the object in that version and its type; None for an unknown version."""

CONFLICT: Final = "FieldManagerConflict"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply. ``object`` is None if nothing changes; it shares values with the arguments."""

    object: Object | None
    entries: list[Entry]


class Unconvertible(Exception):
    """An object that does not fit the schema of another version. The text says which conversion failed, and why."""


def _in_step(versions: Versions, obj: Object, api_version: str, step: str) -> Typed | None:
    """Convert an object. Unconvertible names the step that needed it."""
    try:
        return versions(obj, api_version)
    except Unconvertible as error:
        raise Unconvertible(f"{step}: {error}") from None


class Conflicts(Exception):
    """Other managers own fields that would change: their entries and these fields."""

    def __init__(self, conflicts: list[tuple[Entry, FieldSet]]) -> None:
        super().__init__("conflicts")
        self.conflicts = sorted(conflicts, key=lambda each: _identifier(each[0]))

    def fields(self) -> FieldSet:
        """Return all fields in conflict."""
        together: FieldSet = {}
        for _, fields in self.conflicts:
            together = field_sets.union(together, fields)
        return together

    def without(self, allowed: FieldSet) -> list[tuple[Entry, FieldSet]]:
        """Return the conflicts without these fields."""
        left = [(entry, field_sets.difference(fields, allowed)) for entry, fields in self.conflicts]
        return [(entry, fields) for entry, fields in left if fields]

    def describe(self) -> tuple[list[Cause], str]:
        """Return the causes and the message of the rejection."""
        found = [(entry, list(paths(fields))) for entry, fields in self.conflicts]
        causes = [Cause(CONFLICT, f"conflict with {_shown(entry)}", path) for entry, names in found for path in names]
        if len(causes) == 1:
            return causes, f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
        lines = [
            line
            for entry, names in found
            for line in (f"conflicts with {_shown(entry)}:", *(f"- {path}" for path in names))
        ]
        return causes, f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)


def _identifier(entry: Entry) -> bytes:
    manager, operation, version, subresource = key_of(entry)
    given = (("manager", manager), ("operation", operation), ("apiVersion", version), ("subresource", subresource))
    return orjson.dumps({name: value for name, value in given if value})


def _shown(entry: Entry) -> str:
    text = go_quote(entry.get("manager", ""))
    if entry.get("subresource"):
        text += f" with subresource {go_quote(entry['subresource'])}"
    return f"{text} using {entry.get('apiVersion', '')}" if entry["operation"] == "Update" else text


def apply(
    kind: ObjectType,
    live: Object,
    config: Object,
    named: FieldSet,
    entries: list[Entry],
    *,
    writer: Writer,
    force: bool,
    reset: Paths,
    versions: Versions,
) -> Applied:
    """Apply a valid configuration to an object, both in the writer's version and without managedFields.

    ``named``: the configuration's field set.
    ``reset``: the fields that this endpoint ignores. They are merged (the caller's rules restore them), but not owned.
    Raises Conflicts, and NoPathElement for a list item of the live object without a name.
    """
    own: ManagerKey = (writer.manager, "Apply", "", writer.subresource)
    held = _reconciled(live, entries, versions)
    last = held.get(own)
    merged = structured_merge.merge(live, config, kind)
    mine = field_sets.without_paths(named, reset)
    held[own] = _entry(writer, mine)
    if last is not None and _lets_go(last, mine, writer.api_version):
        merged = _prune(merged, held, last, writer.api_version, versions)
    held = _settle(live, merged, held, own, force=force, reset=reset, versions=versions, writer=writer, kind=kind)
    changed = not unchanged(live, merged, kind)
    _finish_own(held, own, last, now=writer.now if changed else "")
    return Applied(merged if changed else None, managers.ordered(list(held.values())))


def _lets_go(last: Entry, mine: FieldSet, api_version: str) -> bool:
    """Return True if fields may have to be removed: not if all fields of the last apply are applied again."""
    if last.get("apiVersion") != api_version:
        return bool(last["fieldsV1"])
    # The same configuration again is the common case; one comparison finds it, without the fields that have no owners.
    return last["fieldsV1"] != managers.strip_untracked(mine) and bool(field_sets.difference(last["fieldsV1"], mine))


def _reconciled(live: Object, entries: list[Entry], versions: Versions) -> dict[ManagerKey, Entry]:
    held: dict[ManagerKey, Entry] = {}
    for entry in entries:
        typed = versions(live, entry.get("apiVersion", ""))
        if typed is None:
            continue  # of a removed version
        fields = entry.get("fieldsV1") or {}
        held[key_of(entry)] = {**entry, "fieldsV1": structured_merge.reconcile(fields, typed[1])}
    return held


def _entry(writer: Writer, fields: FieldSet) -> Entry:
    entry: Entry = {"manager": writer.manager, "operation": "Apply", "apiVersion": writer.api_version}
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return {**entry, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _finish_own(held: dict[ManagerKey, Entry], own: ManagerKey, last: Entry | None, *, now: str) -> None:
    """Drop fields without owners, and set the time: of this apply if it changed the object, else the former time."""
    entry = held.get(own)
    fields = managers.strip_untracked(entry["fieldsV1"]) if entry is not None else {}
    if entry is None or not fields:
        held.pop(own, None)
        return
    if last is not None and last["fieldsV1"] == fields:
        fields = last["fieldsV1"]  # so that later comparisons end at the identity
    time = now or (last or {}).get("time")
    held[own] = {**entry, "fieldsV1": fields, "time": time} if time else {**entry, "fieldsV1": fields}


# -- fields no longer applied -----------------------------------------------------------------------------------------


def _prune(merged: Object, held: dict[ManagerKey, Entry], last: Entry, api_version: str, versions: Versions) -> Object:
    """Remove the manager's last applied fields that have no owner now; ``held`` already has its new entry."""
    last_version = last.get("apiVersion", "")
    typed = _in_step(
        versions,
        merged,
        last_version,
        "failed to prune fields: failed to convert merged object to last applied version",
    )
    if typed is None:
        return merged
    whole, kind = typed
    formerly = with_named_fields(last["fieldsV1"], kind)
    pruned = _removed(whole, formerly, kind)
    pruned = _add_back_owned(whole, pruned, held, last_version, versions)
    dangling = "failed to prune fields: failed add back dangling items: failed to convert pruned object"
    remaining = _in_step(versions, pruned, last_version, f"{dangling} to last applied version")
    if remaining is None:
        return merged
    # Keep fields without owners that this manager never applied, below fields that it did apply.
    left = with_named_fields(field_set(remaining[0], kind), kind)
    before = with_named_fields(field_set(whole, kind), kind)
    result = _removed(whole, field_sets.intersection(field_sets.difference(before, left), formerly), kind)
    final = versions(result, api_version)
    return merged if final is None else final[0]


def _add_back_owned(
    whole: Object, pruned: Object, held: dict[ManagerKey, Entry], first: str, versions: Versions
) -> Object:
    """Return ``whole`` without the fields that ``pruned`` lacks and no entry owns.

    The version of the last apply comes first, so that fields needed for its conversion are present again.
    """
    owned: dict[str, FieldSet] = {first: {}}
    for entry in held.values():
        version = entry.get("apiVersion", "")
        owned[version] = field_sets.union(owned.get(version, {}), entry["fieldsV1"])
    for version, fields in owned.items():
        step = "failed to prune fields: failed add back owned items: failed to convert"
        all_of = _in_step(versions, whole, version, f"{step} merged object at version {version}")
        some_of = _in_step(versions, pruned, version, f"{step} pruned object at version {version}")
        if all_of is None or some_of is None:
            continue
        whole, kind = all_of
        before = with_named_fields(field_set(whole, kind), kind)
        left = with_named_fields(field_set(some_of[0], kind), kind)
        keep = field_sets.union(left, with_named_fields(fields, kind))
        pruned = _removed(whole, field_sets.difference(before, keep), kind)
    return pruned


def _removed(obj: Object, fields: FieldSet, kind: ObjectType) -> Object:
    result: Object = structured_merge.remove(obj, fields, kind) or {}
    return result


# -- fields of other managers -----------------------------------------------------------------------------------------


def _settle(
    live: Object,
    merged: Object,
    held: dict[ManagerKey, Entry],
    own: ManagerKey,
    *,
    force: bool,
    reset: Paths,
    versions: Versions,
    writer: Writer,
    kind: ObjectType,
) -> dict[ManagerKey, Entry]:
    """Return the entries after the change from ``live`` to ``merged``. Raises Conflicts unless ``force``."""
    others: dict[str, FieldSet] = {}  # by version
    for key, entry in held.items():
        if key != own:
            version = entry.get("apiVersion", "")
            others[version] = field_sets.union(others.get(version, {}), entry["fieldsV1"])
    compared: dict[str, tuple[FieldSet, FieldSet]] = {}
    if writer.api_version in others:
        compared[writer.api_version] = _compare(live, merged, kind, reset, others[writer.api_version])
    left: dict[ManagerKey, Entry] = {}
    conflicts: list[tuple[Entry, FieldSet]] = []
    for key, entry in held.items():
        fields = entry["fieldsV1"]
        if key != own:
            version = entry.get("apiVersion", "")
            if version not in compared:
                before = _in_step(versions, live, version, "failed to convert old object")
                after = _in_step(versions, merged, version, "failed to convert new object")
                if before is None or after is None:
                    continue
                compared[version] = _compare(before[0], after[0], before[1], reset, others[version])
            changed, removed = compared[version]
            taken = field_sets.intersection(fields, changed)
            if taken:
                conflicts.append((entry, taken))
            fields = field_sets.difference(field_sets.difference(fields, taken), removed)
        if fields:
            left[key] = entry if fields == entry["fieldsV1"] else {**entry, "fieldsV1": fields}
    if conflicts and not force:
        raise Conflicts(conflicts)
    return left


def _compare(
    before: Object, after: Object, kind: ObjectType, reset: Paths, within: FieldSet
) -> tuple[FieldSet, FieldSet]:
    """Return the changed and the removed paths; those outside of ``within`` may be missing."""
    changed, removed = changes_within(before, after, kind, within)
    return field_sets.without_paths(changed, reset), field_sets.without_paths(removed, reset)
