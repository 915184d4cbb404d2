"""``python -m kubechronicle.ops.bench.policy_trials``: the CPU of ``kubectl chronicle try-policy`` on a long log.

    python -m kubechronicle.ops.bench.policy_trials --data-dir D                      1,000,000 revisions, kept in D
    python -m kubechronicle.ops.bench.policy_trials --data-dir D --tree ../old --rounds 3

A policy of two expressions judges the creations and updates of pods (half of the log, history_log.py). The command, the
server and its Postgres are measured together, from the times of their processes. With --tree, those of another checkout
take turns with this one's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from kubechronicle.ops.bench import history
from kubechronicle.ops.bench.own_server import ROOT
from kubechronicle.ops.development.server_process import ServerProcess, resident_mib, running

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few-replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  validations:
  - expression: object.spec.replicas < 10
    messageExpression: "'too many replicas: ' + string(object.spec.replicas)"
  - expression: has(object.metadata.labels) && 'app' in object.metadata.labels
    message: no label app
"""
HEAD = (
    "| version | judged, refused | command | server | Postgres | all, µs a write | writes a second of one core |"
    " memory: command, server |\n" + "|---" * 8 + "|"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """One trial: CPU in µs by process, and memory in MiB at its highest (command) and at its end (server)."""

    judged: int
    refused: int
    command: float
    server: float
    postgres: float
    command_mib: float
    server_mib: float

    def row(self, version: str) -> str:
        parts = [each / self.judged for each in (self.command, self.server, self.postgres)]
        texts = " | ".join(f"{each:.1f}" for each in [*parts, sum(parts)])
        memory = f"{self.command_mib:.0f}, {self.server_mib:.0f} MiB"
        return f"| {version} | {self.judged:,}, {self.refused:,} | {texts} | {1e6 / sum(parts):,.0f} | {memory} |"


def measure(server: ServerProcess, policy: Path, until: int, environment: Mapping[str, str]) -> Cost:
    """Run the command on a server. ``until``: the last revision."""
    bounds = ["--since", "1", "--until", str(until)] if until else ["--since", "1"]
    words = ["try-policy", "-f", str(policy), *bounds, "-o", "json", "--kubeconfig", str(server.kubeconfig)]
    before = history.cpu_ms(server)
    process = subprocess.Popen([*server.command(), *words], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    after = history.cpu_ms(server)
    if process.returncode not in (0, 1):
        raise SystemExit(f"try-policy: exit code {process.returncode}")
    document = json.loads(answer)
    return Cost(
        document["writes"],
        document["effects"]["refused"],
        (usage.ru_utime + usage.ru_stime) * 1e6,
        (after[0] - before[0]) * 1e3,
        (after[1] - before[1]) * 1e3,
        usage.ru_maxrss / 1024,
        resident_mib(server.pid),
    )


def rows(data_dir: Path, policy: Path, options: argparse.Namespace) -> Iterator[str]:
    """Yield a row for each version and round. A server's first trial is not counted: it warms up."""
    for _ in range(options.rounds):
        for tree in (*options.tree, None):
            paths = {} if tree is None else {"PYTHONPATH": str(tree.absolute())}
            server = ServerProcess(data_dir, arguments=["--controllers", ""], environment=paths)
            with running(server):
                environment = {**os.environ, **paths}
                measure(server, policy, min(options.until or 10_000, 10_000), environment)
                yield measure(server, policy, options.until, environment).row("this" if tree is None else str(tree))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.policy_trials", description="Measure trials of a policy."
    )
    parser.add_argument("--data-dir", type=Path, help="the data directory of the log (default: temporary)")
    parser.add_argument("--revisions", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=100_000, help="objects that the revisions change")
    parser.add_argument("--days", type=float, default=30.0, help="the days over which they were committed")
    parser.add_argument("--until", type=int, default=0, metavar="REVISION", help="only writes up to it")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="another policy")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout, to compare with")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    with history.directory(options) as data_dir, tempfile.TemporaryDirectory() as scratch:
        facts = trio.run(history.prepare, data_dir, options)
        print(f"A log of {facts.revisions:,} revisions; checkout {ROOT}.\n\n{HEAD}", flush=True)
        policy = options.policy
        if policy is None:
            policy = Path(scratch) / "policy.yaml"
            policy.write_text(POLICY)
        for row in rows(data_dir, policy, options):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
