"""`make conformance`: replay recorded conversations with a real kube-apiserver against this server.

    python -m kubechronicle.ops.development.conformance FOLDER [AREA…] [--newer FOLDER] [--serve=FLAG…] [--details FILE]

FOLDER contains replay.py, cases/AREA.yaml and expected/AREA.json. A missing FOLDER is reported and is no failure. Each
area gets a fresh server with an empty store and the settings of the reference: control loops off, service range
10.96.0.0/16, the caller in system:masters. The comment at the head of a case file may name further flags of its server.
Prints one line per area and the totals. The exit code is 1 if an area could not be replayed, and otherwise 0: failed
cases are a measure, not a gate.

--newer has the answers of a later Kubernetes to the same cases, and cases of its own. --serve gives the server a flag:

    … ../shared/conformance --newer ../shared/conformance-1.37              as v1.37 answers
    … ../shared/conformance --serve=--emulated-version=1.36                 as v1.36 answers, by emulation
"""

from __future__ import annotations

import argparse
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from kubechronicle.ops.development.server_process import ServerProcess, StartError, running

SERVE_ARGUMENTS = ("--controllers", "", "--service-cluster-ip-range", "10.96.0.0/16")
# The user of the recorded requests: some objects contain their author.
CALLER = "bench-admin"
REPLAY_TIMEOUT = 1800.0  # seconds for one area; a server that answers nothing costs 30 a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Passed cases by the two verdicts of replay.py, and the number of all cases."""

    core: int = 0
    strict: int = 0
    cases: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(core=self.core + other.core, strict=self.strict + other.strict, cases=self.cases + other.cases)

    def line(self, name: str) -> str:
        share = 100 * self.core / self.cases if self.cases else 0.0
        return f"{name:14} core {self.core:4}/{self.cases:<4} {share:5.1f} %   strict {self.strict:4}/{self.cases}"


class NotReplayed(Exception):
    """replay.py did not finish; the message is its output."""


def parse(output: str) -> Totals:
    """Read the totals from the last lines of replay.py. Raises NotReplayed without them."""
    counts = {
        name: (int(passed), int(failed))
        for name, passed, failed in re.findall(r"^(strict|core): (\d+) passed, (\d+) failed$", output, re.MULTILINE)
    }
    if set(counts) != {"strict", "core"}:
        raise NotReplayed(output.strip() or "no output")
    return Totals(core=counts["core"][0], strict=counts["strict"][0], cases=sum(counts["core"]))


@dataclass(frozen=True, slots=True)
class Area:
    """An area: its file of cases, the folder of its answers, and the program and policies that replay it."""

    cases: Path
    expected: Path
    tools: Path

    @property
    def name(self) -> str:
        return self.cases.stem

    def flags(self) -> list[str]:
        """Return the flags that the comment at the head of the file names for its server, one line of them."""
        for line in self.cases.read_text().splitlines():
            if not line.startswith("#"):
                break
            if (words := line.removeprefix("#").split()) and all(word.startswith("--") for word in words):
                return words
        return []

    def count(self) -> int:
        return len(yaml.safe_load(self.cases.read_text()))


def areas_of(folder: Path, newer: Path | None) -> dict[str, Area]:
    """Return the areas of a folder by name; ``newer`` has their answers and more areas."""
    answers = newer or folder
    places = [folder] if newer is None else [folder, newer]
    found = [Area(cases, answers / "expected", folder) for each in places for cases in (each / "cases").glob("*.yaml")]
    return {area.name: area for area in sorted(found, key=lambda area: area.name)}


def replay_area(area: Area, serve: Sequence[str], options: Sequence[str] = ()) -> tuple[Totals, str]:
    """Replay one area against a fresh server, with these options of replay.py. Return the totals and its output."""
    with tempfile.TemporaryDirectory(prefix="kubechronicle-conformance-") as directory:
        home = Path(directory)
        token, tokens = home / "token", home / "tokens.csv"
        token.write_text(secrets.token_hex(16))
        tokens.write_text(f'{token.read_text()},{CALLER},{CALLER},"system:masters"\n')
        arguments = ["--token-auth-file", str(tokens), *SERVE_ARGUMENTS, *area.flags(), *serve]
        policy, audit_log = area.tools / "audit" / "policy.yaml", home / "audit.log"
        if area.name.startswith("audit") and policy.is_file():
            arguments += ["--audit-policy-file", str(policy), "--audit-log-path", str(audit_log)]
            options = [*options, "--audit-log", str(audit_log)]
        server = ServerProcess(home / "data", arguments=arguments)
        with running(server):
            command = [
                sys.executable,
                str(area.tools / "replay.py"),
                "--server",
                server.url,
                "--token-file",
                str(token),
                "--cacert",
                str(server.data_dir / "pki" / "ca.crt"),
                "--expected",
                str(area.expected),
                *options,
                str(area.cases),
            ]
            process = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_TIMEOUT, check=False)
    output = process.stdout + process.stderr
    return parse(output), output


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.development.conformance", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("areas", nargs="*", metavar="AREA")
    parser.add_argument("--newer", type=Path, metavar="FOLDER", help="answers of a later Kubernetes, and its cases")
    parser.add_argument("--serve", action="append", default=[], metavar="FLAG", help="a flag of the server, repeatable")
    parser.add_argument(
        "--details",
        type=Path,
        metavar="FILE",
        help="write all differences to FILE, those of messages and warnings included",
    )
    options = parser.parse_args(argv)
    if not (options.folder / "replay.py").is_file():
        print(f"conformance: no replay.py in {options.folder}: nothing to replay")
        return 0
    known = areas_of(options.folder, options.newer)
    if unknown := sorted(set(options.areas) - set(known)):
        print(f"conformance: no such area: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    total, details, exit_code = Totals(), [], 0
    for area in options.areas or known:
        try:
            totals, output = replay_area(known[area], options.serve, ["--strict"] if options.details else [])
            print(totals.line(area), flush=True)
        except (StartError, NotReplayed, subprocess.TimeoutExpired) as error:
            output, exit_code = str(error), 1
            totals = Totals(cases=known[area].count())  # all of them failed
            print(f"{area:14} not replayed: {output.splitlines()[-1]}", flush=True)
        total += totals
        details.append(f"== {area}\n{output}")
    if options.details is not None:
        options.details.write_text("\n".join(details))
    print(total.line("total"))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
