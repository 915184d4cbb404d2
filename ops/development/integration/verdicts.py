"""Verdicts on tests that do not pass, as data: ``verdicts.txt``.

    PACKAGE TEST VERDICT WHY
    crd     TestEtcdStorage  etcd  expects definitions of a former version in storage

A verdict other than ``fault`` says that the test is no test of an API server's behaviour, or of one that this server
has. A run fails on each test that neither passes nor has such a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.ops.development.integration.outcomes import PASS, SKIP, Outcome

FILE: Final = Path(__file__).with_name("verdicts.txt")
FAULT, ETCD = "fault", "etcd"
KINDS: Final[Mapping[str, str]] = {
    FAULT: "a fault of this server",
    ETCD: "the test needs more of etcd than the keys that the harness has, or a form in which this server stores none; "
    "it is not run",
    "process": "the test reaches into the process of the server, or rests on the harness",
    "gate": "a gate, or a version to emulate, that cannot be switched here",
    "difference": "a documented difference",
    "upstream": "the test fails with a kube-apiserver in process, too",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: str
    why: str


Key = tuple[str, str]
"""A package and a test."""


def load(text: str) -> dict[Key, Verdict]:
    """Return the verdicts of a file. ValueError: a line has no kind of verdict, or no reason, or repeats a test."""
    found: dict[Key, Verdict] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        package, test, kind, why = [*line.split(maxsplit=3), "", "", ""][:4]
        if kind not in KINDS or not why or (package, test) in found:
            raise ValueError(f"this is no verdict: {line}")
        found[package, test] = Verdict(kind, why)
    return found


def unexplained(outcomes: Iterable[Outcome], verdicts: Mapping[Key, Verdict]) -> list[Outcome]:
    """Return the outcomes on which a run fails."""
    return [
        each
        for each in outcomes
        if each.outcome not in (PASS, SKIP)
        and verdicts.get((each.package, each.test), Verdict(FAULT, "")).kind == FAULT
    ]


def outdated(outcomes: Iterable[Outcome], verdicts: Mapping[Key, Verdict]) -> list[Outcome]:
    """Return the tests that pass in spite of a verdict."""
    return [each for each in outcomes if each.outcome == PASS and (each.package, each.test) in verdicts]
