"""A revision as text: time, user, program, and the fields it changed. Values of Secrets are masked.

Also the causes of a change, as the server tells them (actors/history/causes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from kubechronicle.api.explaining.causes import DELETING
from kubechronicle.api.history.cells import PAST_TENSES, action_of, object_cell, user_named
from kubechronicle.api.history.differences import (
    CONSEQUENCES,
    Difference,
    differences,
    fields_at,
    is_within,
    same,
    shown_value,
    steps,
    values_at,
)
from kubechronicle.api.history.secret_values import FIELDS as SECRET_FIELDS
from kubechronicle.api.history.secret_values import LAST_APPLIED
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Screen, ago, format_time
from kubechronicle.ops.client.revision_reader import RevisionQuery, Scope, parameters_of, scopes_in
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.terminal import Painted, Part, yaml_text

# Lines printed of a list or mapping that was added or removed.
MAX_LINES: Final = 12


def field_changes(revision: Mapping[str, Any], *, field: str = "") -> list[Difference]:
    """Return the fields that an update changed; with ``field``, only those within it. Needs the revision's objects."""
    if any(revision.get(each) for each in ("redacted", "erased", "beforeErased")) or revision["operation"] != "Update":
        return []
    before, after = revision.get("before") or {}, revision.get("after") or {}
    changes = [each for each in differences(before, after) if each.field not in CONSEQUENCES]
    return _within(field, changes, before, after) if field else changes


def _within(
    field: str, changes: Sequence[Difference], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[Difference]:
    """Return the changes of a field. Each state resolves the path, so that an item moved to a position is a change."""
    fields = {*fields_at(before, field), *fields_at(after, field)}
    found = [each for each in changes if any(is_within(each.field, one) for one in fields)]
    old, new = values_at(before, field), values_at(after, field)
    if found or same(old, new):
        return found
    op: Literal["add", "remove", "replace"] = "add" if not old else "replace" if new else "remove"
    return [Difference(op, steps(field), field, *(each[0] if len(each) == 1 else each for each in (old, new)))]


def mask_changes(changes: Sequence[Difference], kind: str) -> list[Difference]:
    """Mask the values of a Secret as kubectl diff does: a change shows, its values do not."""
    if kind != "Secret":
        return list(changes)
    return [
        Difference(each.op, each.path, each.field, _mask(each.old, "before"), _mask(each.new, "after"))
        if each.path[0] in SECRET_FIELDS or LAST_APPLIED in each.path or _contains_last_applied(each)
        else each
        for each in changes
    ]


def _contains_last_applied(change: Difference) -> bool:
    return any(isinstance(value, dict) and LAST_APPLIED in value for value in (change.old, change.new))


def _mask(value: Any, when: str) -> Any:
    if isinstance(value, dict):
        return {name: _mask(each, when) for name, each in value.items()}
    return value if value is None else f"*** ({when})"


def mask_object(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with stars instead of a Secret's values."""
    if obj.get("kind") != "Secret":
        return dict(obj)
    masked = {
        name: dict.fromkeys(value, "***") if name in SECRET_FIELDS and value else value for name, value in obj.items()
    }
    metadata = dict(masked.get("metadata") or {})
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {**metadata["annotations"], LAST_APPLIED: "***"}
    return {**masked, "metadata": metadata}


def revision_document(revision: Mapping[str, Any], *, show_secrets: bool) -> dict[str, Any]:
    """Return a revision as printed by -o json: without the objects, and without the changes of a Secret."""
    hidden = {"before", "after"}
    if revision["object"].get("kind") == "Secret" and not show_secrets:
        hidden |= {"diff", "summary"}
    return {name: value for name, value in revision.items() if name not in hidden}


def user_of(revision: Mapping[str, Any]) -> str:
    author = revision.get("who") or {}
    return user_named(author.get("username", ""), author.get("impersonator", ""))


def _program_and_origin(revision: Mapping[str, Any]) -> str:
    """Return program, field manager and address: ``kubectl/v1.37.2, manager kubectl-set, from 10.0.0.7``."""
    author = revision.get("who") or {}
    parts = [(author.get("userAgent") or "").partition(" ")[0]]
    if author.get("fieldManager"):
        parts.append(f"manager {author['fieldManager']}")
    if author.get("sourceAddress"):
        parts.append(f"from {author['sourceAddress']}")
    return ", ".join(part for part in parts if part)


def print_revision(screen: Screen, revision: Mapping[str, Any], changes: Sequence[Difference], now: datetime) -> None:
    """Print a revision as an entry of a timeline."""
    namespace, time = revision["object"].get("namespace"), revision.get("time", "")
    screen.line(
        Painted(f"revision {revision['metadata']['name']}", "revision"),
        Painted(f" in database {printable(revision['database'])}" if "database" in revision else "", "dim"),
        f"  {format_time(time)} ({ago(time, now)})  ",
        Painted(f"{action_of(revision)} {object_cell(revision)}", "strong"),
        Painted(f" -n {namespace}" if namespace else "", "dim"),
    )
    screen.line("  by ", Painted(user_of(revision), "who"), Painted(f", {_program_and_origin(revision)}", "dim"))
    if revision.get("reason"):
        screen.line("  reason: ", Painted(printable(revision["reason"]), "strong"))
    for part in _operation_lines(revision, changes):
        screen.line("    ", part)
    for parts in change_lines(changes):
        screen.line("    ", *parts)


def _operation_lines(revision: Mapping[str, Any], changes: Sequence[Difference]) -> Iterator[Painted]:
    if revision.get("problem"):
        yield Painted(f"the object cannot be decrypted: {revision['problem']}", "warning")
    elif revision.get("redacted"):
        yield Painted("no permission to read the object", "warning")
    elif revision.get("erased"):
        operation = {"Create": "created; ", "Delete": "deleted; "}.get(revision["operation"], "")
        yield Painted(f"{operation}the object is erased from history", "warning")
    elif revision.get("beforeErased") and revision["operation"] == "Update":
        yield Painted("the object before this change is erased from history", "warning")
    elif revision["operation"] == "Create":
        yield Painted("created", "new")
    elif revision["operation"] == "Delete":
        yield Painted("deleted", "old")
    elif not changes:
        yield Painted("bookkeeping only", "dim")


def change_lines(changes: Sequence[Difference]) -> Iterator[tuple[Part, ...]]:
    """Yield one or more lines per field, each as its parts."""
    for change in changes:
        yield from _lines_of(change)


def _lines_of(change: Difference) -> Iterator[tuple[Part, ...]]:
    if change.op == "replace" and not any(isinstance(value, dict | list) for value in (change.old, change.new)):
        old, new = Painted(_one_line(change.old), "old"), Painted(_one_line(change.new), "new")
        yield f"{change.field}: ", old, " → ", new
        return
    for value, sign, colour, exists in (
        (change.old, "-", "old", change.op != "add"),
        (change.new, "+", "new", change.op != "remove"),
    ):
        if not exists:
            continue
        if not isinstance(value, dict | list) or not value:
            yield (Painted(f"{sign} {change.field}: {_one_line(value)}", colour),)
            continue
        yield (Painted(f"{sign} {change.field}:", colour),)
        lines = yaml_text(value).splitlines()
        for line in lines[:MAX_LINES]:
            yield (Painted(f"{sign}   {line}", colour),)
        if len(lines) > MAX_LINES:
            yield (Painted(f"{sign}   … {len(lines) - MAX_LINES} more lines (all with -o yaml)", "dim"),)


def _one_line(value: Any) -> str:
    """Return a value on one line: longer than in a table's cell, but bounded."""
    if isinstance(value, str) and value.isprintable() and 40 < len(value) <= 200:
        return value
    return shown_value(value)


ABOUT: Final = ("because", "known", "explained")
VERBS: Final = {"Create": "created", "Delete": "deleted"}


class Chain(NamedTuple):
    """A change and its causes.

    ``links``: the revisions, from the change itself to its first cause. All but the last have ``because``, ``known``
    (mark, recorded, inferred) and ``explained``.
    ``stopped``: why there may be earlier causes; "" if there are none.
    """

    links: list[Object]
    stopped: str = ""


def chain_of(client: Client, revision: Object) -> Chain:
    """Return a change with its causes. ApiError; a server without causes returns the change alone."""
    namespace = str(revision["object"].get("namespace", ""))
    scope = scopes_in(namespace)[0] if namespace else scopes_in("")[1]
    named = Scope(scope.path, (("metadata.name", revision["metadata"]["name"]),))
    query = RevisionQuery([named], content="")
    try:
        found = client.get(named.path, {"summary": "causes", **parameters_of(query, named)})
    except ApiError as error:
        if error.code != 400:
            raise
        return Chain([revision], "this server does not tell causes")
    links = found["links"] or [revision]
    about = {name: links[0][name] for name in ABOUT if name in links[0]}
    return Chain([revision | about, *links[1:]], str(found.get("stopped", "")))


def past_tense(revision: Object) -> str:
    """Return the act of a change as a verb: ``deleted`` for a mark for deletion, too."""
    action = action_of(revision)
    if action in PAST_TENSES:
        return PAST_TENSES[action]
    return "deleted" if action in DELETING else VERBS.get(revision["operation"], "changed")


def subject_of(kinds: Kinds, revision: Object) -> Subject:
    """Return the object of a revision, also of a kind that the server does not have any more."""
    of = revision["object"]
    group, namespace, plural = str(of.get("apiVersion", "")).rpartition("/")[0], of.get("namespace", ""), of["resource"]
    kind = kinds.of_resource(group, plural) or Kind(
        group, "", plural, str(of.get("kind", "")).lower(), of.get("kind", ""), bool(namespace), frozenset()
    )
    return Subject(kind, namespace, of.get("name", ""))
