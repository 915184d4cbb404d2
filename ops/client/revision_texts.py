"""A revision in words: when, who, with what, and which fields it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubechronicle.api.history.differences import CONSEQUENCES, Difference, differences, is_within, shown_value
from kubechronicle.api.history.revisions import object_cell
from kubechronicle.ops.client.output import Screen, ago, shown_time, yaml_text

# Lines of a list or mapping that came or went, unless all are asked for.
LINES: Final = 12
SECRET: Final = ("data", "stringData")
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def made(revision: Mapping[str, Any], *, field: str = "") -> list[Difference]:
    """The fields an update changed, of those asked for. Needs the revision's contents."""
    if any(revision.get(each) for each in ("redacted", "erased", "beforeErased")) or revision["operation"] != "Update":
        return []
    found = differences(revision.get("before") or {}, revision.get("after") or {})
    return [one for one in found if one.field not in CONSEQUENCES and (not field or is_within(one.field, field))]


def concealed(found: Sequence[Difference], revision: Mapping[str, Any]) -> list[Difference]:
    """Without what a Secret holds: that it changed is told, and no more, as kubectl diff has it."""
    if revision["object"].get("kind") != "Secret":
        return list(found)
    return [
        Difference(one.op, one.path, one.field, _hidden(one.old, "before"), _hidden(one.new, "after"))
        if one.path[0] in SECRET or APPLIED in one.path or _holds_applied(one)
        else one
        for one in found
    ]


def _holds_applied(one: Difference) -> bool:
    """What kubectl apply has kept has the data in it."""
    return any(isinstance(value, dict) and APPLIED in value for value in (one.old, one.new))


def _hidden(value: Any, when: str) -> Any:
    if isinstance(value, dict):
        return {name: _hidden(each, when) for name, each in value.items()}
    return value if value is None else f"*** ({when})"


def document(revision: Mapping[str, Any], *, secrets: bool) -> dict[str, Any]:
    """A revision as -o json tells it: without the objects, of Secrets without what changed unless ``secrets``."""
    hidden = {"before", "after"}
    if revision["object"].get("kind") == "Secret" and not secrets:
        hidden |= {"diff", "summary"}
    return {name: value for name, value in revision.items() if name not in hidden}


def without_secrets(obj: Mapping[str, Any]) -> dict[str, Any]:
    """An object with stars for what a Secret holds."""
    if obj.get("kind") != "Secret":
        return dict(obj)
    found = {name: dict.fromkeys(value, "***") if name in SECRET and value else value for name, value in obj.items()}
    metadata = dict(found.get("metadata") or {})
    if APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {**metadata["annotations"], APPLIED: "***"}
    return {**found, "metadata": metadata}


def user(revision: Mapping[str, Any]) -> str:
    who = revision.get("who") or {}
    name, by = who.get("username") or "an unknown user", who.get("impersonator")
    return f"{name} (impersonated by {by})" if by else name


def agent(revision: Mapping[str, Any]) -> str:
    """The program, without its build: kubectl/v1.36.2."""
    return ((revision.get("who") or {}).get("userAgent") or "").partition(" ")[0]


def means(revision: Mapping[str, Any]) -> str:
    """With what, and from where."""
    who = revision.get("who") or {}
    told = [agent(revision)]
    if who.get("fieldManager"):
        told.append(f"manager {who['fieldManager']}")
    if who.get("sourceAddress"):
        told.append(f"from {who['sourceAddress']}")
    return ", ".join(part for part in told if part)


def entry(screen: Screen, revision: Mapping[str, Any], found: Sequence[Difference], now: datetime) -> None:
    """The entry of a timeline."""
    of, time = revision["object"], revision.get("time", "")
    where = f" -n {of['namespace']}" if of.get("namespace") else ""
    verb = (revision.get("request") or {}).get("verb") or revision["operation"].lower()
    screen.line(
        screen.paint(f"revision {revision['metadata']['name']}", "revision")
        + f"  {shown_time(time)} ({ago(time, now)})  "
        + screen.paint(f"{verb} {object_cell(revision)}", "strong")
        + screen.paint(where, "dim")
    )
    screen.line(f"  by {screen.paint(user(revision), 'who')}" + screen.paint(f", {means(revision)}", "dim"))
    for line in told(screen, revision, found):
        screen.line(f"    {line}")


def told(
    screen: Screen, revision: Mapping[str, Any], found: Sequence[Difference], *, whole: bool = False
) -> Iterator[str]:
    """What it changed, a line or more for each field."""
    if revision.get("redacted"):
        yield screen.paint("no right to read the object", "warning")
    elif revision.get("erased"):
        done = {"Create": "created; ", "Delete": "deleted; "}.get(revision["operation"], "")
        yield screen.paint(f"{done}what it was is erased from history", "warning")
    elif revision.get("beforeErased") and revision["operation"] == "Update":
        yield screen.paint("what it was before is erased from history", "warning")
    elif revision["operation"] == "Create":
        yield screen.paint("created", "new")
    elif revision["operation"] == "Delete":
        yield screen.paint("deleted", "old")
    elif not found:
        yield screen.paint("bookkeeping only", "dim")
    for one in found:
        yield from _difference(screen, one, whole=whole)


def _difference(screen: Screen, one: Difference, *, whole: bool) -> Iterator[str]:
    if one.op == "replace" and not any(isinstance(value, dict | list) for value in (one.old, one.new)):
        yield f"{one.field}: {screen.paint(_short(one.old), 'old')} → {screen.paint(_short(one.new), 'new')}"
        return
    for value, sign, colour, there in (
        (one.old, "-", "old", one.op != "add"),
        (one.new, "+", "new", one.op != "remove"),
    ):
        if not there:
            continue
        if not isinstance(value, dict | list) or not value:
            yield screen.paint(f"{sign} {one.field}: {_short(value)}", colour)
            continue
        yield screen.paint(f"{sign} {one.field}:", colour)
        lines = yaml_text(value).splitlines()
        for line in lines if whole else lines[:LINES]:
            yield screen.paint(f"{sign}   {line}", colour)
        if len(lines) > LINES and not whole:
            yield screen.paint(f"{sign}   … {len(lines) - LINES} more lines (-o yaml tells all)", "dim")


def _short(value: Any) -> str:
    """Longer than in a table's cell, and yet a line."""
    if isinstance(value, str) and value.isprintable() and 40 < len(value) <= 200:
        return value
    return shown_value(value)
