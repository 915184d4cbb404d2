"""Merging of OpenAPI v2 documents: those of other servers into this server's.

    definition missing here             copied
    the same here, or only of           kept, with the kinds of both
    another list of kinds
    different here                      copied as NAME_v2, NAME_v3, …; references follow
    path here already                   kept as it is here

Parameters are merged as definitions are. Sources: kube-openapi ``pkg/aggregator``; kube-aggregator
``pkg/controllers/openapi``. Pure functions. No argument is changed, but results share parts with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Document = dict[str, Any]

DEFINITION: Final = "#/definitions/"
PARAMETER: Final = "#/parameters/"
KINDS: Final = "x-kubernetes-group-version-kind"


def filtered(document: Mapping[str, Any], keep: Callable[[str], bool]) -> Document:
    """Return a document with the paths that ``keep`` accepts, and without definitions that only other paths use.

    AttributeError, TypeError: it is malformed.
    """
    definitions: Mapping[str, Any] = document.get("definitions") or {}
    paths = {path: item for path, item in (document.get("paths") or {}).items() if keep(path)}
    parameters: Mapping[str, Any] = document.get("parameters") or {}
    before = _used([document.get("paths"), parameters], definitions)
    after = _used([paths, parameters], definitions)
    kept = {name: each for name, each in definitions.items() if name in after or name not in before}
    return {**document, "paths": paths, "definitions": kept}


def merged(document: Mapping[str, Any], source: Mapping[str, Any]) -> Document:
    """Return a document with the paths, definitions and parameters of another one added.

    AttributeError, KeyError, TypeError, RecursionError: the source is malformed, or nested too deeply.
    """
    paths: Mapping[str, Any] = document.get("paths") or {}
    new = {path for path in source.get("paths") or {} if path not in paths}
    if not new:
        return dict(document)
    added = filtered(source, new.__contains__)
    definitions = _renamed(document.get("definitions") or {}, added["definitions"], _without_kinds)
    if definitions:
        added = _with_references(added, {DEFINITION + old: DEFINITION + name for old, name in definitions.items()})
    parameters = _renamed(document.get("parameters") or {}, added.get("parameters") or {})
    if parameters:
        added = _with_references(added, {PARAMETER + old: PARAMETER + name for old, name in parameters.items()})
    all_definitions = dict(document.get("definitions") or {})
    for name, each in added["definitions"].items():
        name = definitions.get(name, name)
        present = all_definitions.get(name)
        all_definitions[name] = each if present is None else _with_kinds(present, each)
    all_parameters = dict(document.get("parameters") or {})
    for name, each in (added.get("parameters") or {}).items():
        all_parameters.setdefault(parameters.get(name, name), each)
    return {
        **document,
        "paths": dict(sorted({**added["paths"], **paths}.items())),
        "definitions": dict(sorted(all_definitions.items())),
        "parameters": dict(sorted(all_parameters.items())),
    }


def _used(roots: Iterable[Any], definitions: Mapping[str, Any]) -> set[str]:
    """Return the names of the definitions that roots refer to, directly or through definitions."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.startswith(DEFINITION):
                name = reference.removeprefix(DEFINITION)
                if name not in found:
                    found.add(name)
                    waiting.append(definitions.get(name))
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return found


def _renamed(
    present: Mapping[str, Any], added: Mapping[str, Any], compared: Callable[[Any], Any] = lambda one: one
) -> dict[str, str]:
    """Return the new names of those added that differ from the present ones of their name."""
    renames: dict[str, str] = {}
    taken = set(present)
    for name, each in added.items():
        if name not in present or compared(present[name]) == compared(each):
            continue
        number = 2
        while f"{name}_v{number}" in present and compared(present[f"{name}_v{number}"]) != compared(each):
            number += 1
        if f"{name}_v{number}" not in present:
            while f"{name}_v{number}" in taken or f"{name}_v{number}" in added:
                number += 1
        renames[name] = f"{name}_v{number}"
        taken.add(renames[name])
    return renames


def _without_kinds(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    return {member: value for member, value in definition.items() if member != KINDS}


def _with_kinds(present: Mapping[str, Any], added: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a definition with the kinds of another that is equal otherwise."""
    kinds = list(present.get(KINDS) or ())
    new = [one for one in added.get(KINDS) or () if one not in kinds]
    if not new:
        return present
    return {**present, KINDS: sorted([*kinds, *new], key=_kind_name)}


def _kind_name(kind: Mapping[str, Any]) -> str:
    return f"{kind.get('group')}/{kind.get('version')}.{kind.get('kind')}"


def _with_references(value: Any, renames: Mapping[str, str]) -> Any:
    """Return a value whose references have their new names."""
    if isinstance(value, list):
        return [_with_references(each, renames) for each in value]
    if not isinstance(value, dict):
        return value
    made = {member: _with_references(each, renames) for member, each in value.items()}
    reference = made.get("$ref")
    if isinstance(reference, str):
        made["$ref"] = renames.get(reference, reference)
    return made
