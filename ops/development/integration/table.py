"""The table of outcomes by package, for docs/conformance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kubechronicle.ops.development.integration.outcomes import PASS, SKIP, Outcome
from kubechronicle.ops.development.integration.verdicts import ETCD, FAULT, Key, Verdict

COLUMNS: Final = ("package", "tests", "pass", "subtests", "skipped", "fail with a verdict", "fault")


def rows(outcomes: Collection[Outcome], verdicts: Mapping[Key, Verdict]) -> list[tuple[str | int, ...]]:
    """Return a row for each package that was run, and their sum. Tests that are not run count as skipped."""
    packages = sorted({each.package for each in outcomes})
    made = [_row(package, [each for each in outcomes if each.package == package], verdicts) for package in packages]
    total = [sum(int(row[column]) for row in made) for column in range(1, len(COLUMNS))]
    return [*made, ("total", *total)]


def _row(package: str, outcomes: Sequence[Outcome], verdicts: Mapping[Key, Verdict]) -> tuple[str | int, ...]:
    unrun = sum(name == package and verdict.kind == ETCD for (name, _), verdict in verdicts.items())
    kinds: Counter[str] = Counter()
    for each in outcomes:
        if each.outcome in (PASS, SKIP):
            kinds[each.outcome] += 1
        else:
            verdict = verdicts.get((package, each.test))
            kinds[FAULT if verdict is None or verdict.kind == FAULT else "verdict"] += 1
    leaves = sum(len(each.passed) for each in outcomes)
    return package, len(outcomes) + unrun, kinds[PASS], leaves, kinds[SKIP] + unrun, kinds["verdict"], kinds[FAULT]


def markdown(outcomes: Collection[Outcome], verdicts: Mapping[Key, Verdict]) -> str:
    """Return the table as Markdown."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *rows(outcomes, verdicts)]
    return "\n".join(f"| {' | '.join(_shown(cell) for cell in line)} |" for line in lines) + "\n"


def _shown(cell: str | int) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell
