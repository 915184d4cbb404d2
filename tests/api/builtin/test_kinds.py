"""The places of the built-in kinds: each registered kind has one file, and no file or table entry is without a kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.builtin import kinds
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.registry.resources import GROUPS, OWN_GROUPS, STORED_AS, Row

ROOT = Path(__file__).resolve().parents[3]
BUILTIN = ROOT / "api" / "builtin"
IMPORT = re.compile(r"^ *from kubechronicle\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
MOST_LINES = 400
"""Lines of a file, beyond which a kind has a folder."""


def file_of(place: str) -> Path:
    """Return the file with the records of a place: GROUP/KIND.py or GROUP/KIND/KIND.py."""
    path = BUILTIN.joinpath(*place.split("."))
    return path / f"{path.name}.py" if (path / "__init__.py").exists() else path.with_suffix(".py")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported() -> set[str]:
    """Return the modules, and the names in them, that modules of api, actors, http and ops import."""
    names: set[str] = set()
    for top in ("api", "actors", "http", "ops"):
        for path in (ROOT / top).rglob("*.py"):
            for module, listed in IMPORT.findall(path.read_text()):
                names |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", listed))}
    return names


def rows() -> Iterator[tuple[str, Row]]:
    """Yield (group, row) of each kind, once in whichever of its versions."""
    for table in (GROUPS, OWN_GROUPS):
        for group, versions in table.items():
            for row in {row.plural: row for rows in versions.values() for row in rows}.values():
                if STORED_AS.get((group, row.plural), (group,))[0] == group:
                    yield group, row


def test_each_registered_resource_has_one_record() -> None:
    records = Counter(kind.resource for kind in kinds.KINDS)
    assert records == Counter(f"{row.plural}.{group}".rstrip(".") for group, row in rows())


def test_each_file_of_a_kind_is_named_by_the_registry_and_every_other_file_is_used() -> None:
    files = {path for path in BUILTIN.rglob("*.py") if path.name != "__init__.py"} - {BUILTIN / "kinds.py"}
    with_kinds = {path for path in files if re.search(r"^KINDS?: ", path.read_text(), re.MULTILINE)}
    assert with_kinds == set(map(file_of, kinds.places()))
    used = imported()
    assert not {path for path in files - with_kinds if module_of(path) not in used}


@pytest.mark.parametrize("place", sorted(kinds.SHARED))
def test_a_shared_file_holds_the_kinds_that_say_so(place: str) -> None:
    registered = {f"{group.partition('.')[0] or 'core'}.{row.kind}" for group, row in rows()}
    assert {f"{place.partition('.')[0]}.{kind}" for kind in kinds.SHARED[place]} <= registered


@pytest.mark.parametrize(
    "table",
    [
        lambda kind: kind.default_values,
        lambda kind: kind.default_functions,
        lambda kind: kind.resource_lists,
        lambda kind: kind.converters,
    ],
    ids=["values", "functions", "amounts", "converters"],
)
def test_two_kinds_never_have_a_rule_for_the_same_definition(table: Callable[[BuiltinKind], Iterable[Any]]) -> None:
    assert [
        key for key, count in Counter(key for kind in kinds.KINDS for key in table(kind)).items() if count > 1
    ] == []


def test_a_kind_is_read_from_one_file_or_from_a_folder_of_few() -> None:
    for path in BUILTIN.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= MOST_LINES, path
