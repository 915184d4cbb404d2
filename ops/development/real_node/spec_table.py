"""The table of results, docs/conformance-specs.csv: each conformance spec with kubechronicle and with kube-apiserver.

    python -m kubechronicle.ops.development.real_node.spec_table > docs/conformance-specs.csv

The results come from .cache/node/results-ours.json and results-real.json. A spec without a result was not run.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kubechronicle.ops.development.real_node.node import KUBECTL
from kubechronicle.ops.development.real_node.programs import BIN, CACHE
from kubechronicle.ops.development.real_node.specs import Result, group_of, load

COLUMNS: Final = ("group", "spec", "kubechronicle", "kube_apiserver")
NOT_RUN: Final = ""


def rows(
    names: Iterable[str], ours: Mapping[str, Result], real: Mapping[str, Result]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows, by special interest group."""
    for group, name in sorted((group_of(name), name) for name in names):
        shown = name.removeprefix(f"[{group}] ").replace("[Conformance]", "")
        yield group, " ".join(shown.split()), _state(ours, name), _state(real, name)


def _state(results: Mapping[str, Result], name: str) -> str:
    return results[name].state if name in results else NOT_RUN


def conformance_specs() -> list[str]:
    """Return the names of all conformance specs, from e2e.test itself."""
    listed = subprocess.run(
        [BIN / "e2e.test", "--list-tests", f"--kubectl-path={KUBECTL}"], capture_output=True, text=True, check=True
    )
    return sorted({line.strip().partition(": ")[2] for line in listed.stdout.splitlines() if "[Conformance]" in line})


def main() -> None:
    ours, real = (load(CACHE / f"results-{name}.json") for name in ("ours", "real"))
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(rows(conformance_specs(), ours, real))


if __name__ == "__main__":
    main()
