"""The page of results, docs/conformance-specs.md: each conformance spec with kubechronicle and with kube-apiserver.

    python -m kubechronicle.ops.development.real_node.spec_page > docs/conformance-specs.md

The results come from .cache/node/results-ours.json and results-real.json. A spec without a result there was not run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping

from kubechronicle.api.kinds import RELEASE
from kubechronicle.ops.development.real_node.node import KUBECTL
from kubechronicle.ops.development.real_node.programs import BIN, CACHE
from kubechronicle.ops.development.real_node.specs import Result, group_of, load

HEAD = f"""# Conformance specs on a real node

The conformance specs of Kubernetes {RELEASE} (e2e.test) on one real node, with kubechronicle and, for the specs that
failed there, with a real kube-apiserver on the same kind of node. `make test-node E2E=.` runs them.
[conformance.md](conformance.md) gives the totals and the reasons of failures. `–` stands for a spec that was not run.
Written by `python -m kubechronicle.ops.development.real_node.spec_page`.
"""
NOT_RUN = "–"


def page(names: Iterable[str], ours: Mapping[str, Result], real: Mapping[str, Result]) -> str:
    """Return the page: a table for each special interest group."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(group_of(name), []).append(name)
    lines = [HEAD]
    for group, members in sorted(groups.items()):
        lines += [f"## {group}", "", "| spec | kubechronicle | kube-apiserver |", "|---|---|---|"]
        for name in members:
            shown = name.removeprefix(f"[{group}] ").replace("[Conformance]", "").replace("|", "\\|")
            lines.append(f"| {' '.join(shown.split())} | {_state(ours, name)} | {_state(real, name)} |")
        lines.append("")
    return "\n".join(lines)


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
    sys.stdout.write(page(conformance_specs(), ours, real))


if __name__ == "__main__":
    main()
