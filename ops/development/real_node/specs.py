"""Kubernetes' own end-to-end tests (e2e.test, ginkgo) on a real node, and their results as a table.

Results are kept by the name of the spec, so that a long suite can be run in parts, and compared: the same specs with
kubechronicle and with a real kube-apiserver, on the same kind of node.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kubechronicle.ops.development.real_node.node import KUBECTL, Node
from kubechronicle.ops.development.real_node.programs import BIN, Unavailable

CONFORMANCE = r"\[Conformance\]"
# Ginkgo prints the names of specs with the texts of their containers before them; a label is in brackets.
_SIG = re.compile(r"\[(sig-[a-z-]+)\]")
_KEPT_MESSAGE = 600  # characters of a failure
GRACE = 60.0  # seconds beyond its own time limit, and after each signal, that ginkgo may take to end
INTERRUPTS = 3  # ginkgo writes its report after the second


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one spec. ``state``: passed, failed, skipped, or another word of ginkgo."""

    name: str
    state: str
    seconds: float
    message: str = ""


def group_of(name: str) -> str:
    """Return the special interest group in the name of a spec."""
    found = _SIG.search(name)
    return found[1] if found else "?"


def run_specs(
    node: Node, *, focus: str, skip: Sequence[str] = (), processes: int = 2, minutes: float = 60.0
) -> list[Result]:
    """Run the specs that match ``focus`` and none of ``skip``. Return the results of those that were reached."""
    folder = node.home / "specs"
    folder.mkdir(exist_ok=True)
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [
        str(BIN / "ginkgo"), "run", f"--procs={processes}", f"--timeout={minutes:g}m", "--no-color", "--silence-skips",
        f"--focus={focus}", *(f"--skip={pattern}" for pattern in skip), "--json-report=report.json",
        f"--output-dir={folder}", str(BIN / "e2e.test"), "--", f"--kubeconfig={node.admin}",
        f"--kubectl-path={KUBECTL}", "--provider=skeleton", "--num-nodes=1", "--dump-logs-on-failure=false",
        "--disable-log-dump", f"--kubelet-root-dir={node.home / 'kubelet'}",
    ]  # fmt: skip
    with (
        (folder / "output.log").open("wb") as output,
        subprocess.Popen(
            ["nice", *command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=node.environment(),
        ) as ginkgo,
    ):  # fmt: skip
        try:
            ginkgo.wait(minutes * 60 + 2 * GRACE)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            # The specs that have ended count: the first signal ends those under way, the next one their cleaning up.
            for _ in range(INTERRUPTS):
                ginkgo.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    ginkgo.wait(GRACE)
                    break
        finally:
            ginkgo.kill()
    if not report.is_file():
        lines = (folder / "output.log").read_text(errors="replace").splitlines()
        raise Unavailable(f"ginkgo wrote no report; its output ends: {' '.join(lines[-3:])}")
    return read_report(report)


def read_report(path: Path) -> list[Result]:
    """Return the results in ginkgo's JSON report, without the specs that were filtered out."""
    results = []
    for suite in json.loads(path.read_text()):
        for spec in suite["SpecReports"] or []:
            if spec["LeafNodeType"] == "It" and (spec["State"] not in ("skipped", "pending") or _reason(spec)):
                results.append(_result(spec))
    return results


def _result(spec: Mapping[str, Any]) -> Result:
    name = " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
    return Result(name=name, state=spec["State"], seconds=round(spec["RunTime"] / 1e9, 1), message=_reason(spec))


def _reason(spec: Mapping[str, Any]) -> str:
    failure = spec.get("Failure") or {}
    message = " ".join(str(failure.get("Message", "")).split())
    return message[:_KEPT_MESSAGE]


def merge(path: Path, results: Iterable[Result]) -> dict[str, Result]:
    """Add results to those of earlier parts in a file. A newer result of the same spec replaces the older one."""
    kept = load(path) | {result.name: result for result in results}
    path.write_text(json.dumps([asdict(kept[name]) for name in sorted(kept)], indent=1))
    return kept


def load(path: Path) -> dict[str, Result]:
    """Return the results of a file by name; none if there is no file."""
    if not path.is_file():
        return {}
    return {item["name"]: Result(**item) for item in json.loads(path.read_text())}


def table(results: Mapping[str, Result]) -> str:
    """Return the counts by special interest group as a Markdown table, and the failures with their reasons."""
    states = ("passed", "failed", "skipped")
    counts: dict[str, Counter[str]] = {}
    for result in results.values():
        state = result.state if result.state in states else "failed"
        counts.setdefault(group_of(result.name), Counter())[state] += 1
    lines = ["| group | passed | failed | skipped |", "|---|---|---|---|"]
    for sig in sorted(counts):
        lines.append(f"| {sig} | " + " | ".join(str(counts[sig][state]) for state in states) + " |")
    total = sum(counts.values(), Counter[str]())
    lines.append("| all | " + " | ".join(str(total[state]) for state in states) + " |")
    wrong = [result for result in results.values() if result.state not in ("passed", "skipped")]
    lines += ["", *(f"- {result.state}: {result.name}\n  {result.message}" for result in wrong)]
    return "\n".join(lines) + "\n"
