"""``make integration``: run Kubernetes' integration tests against this server, and fail on those without a verdict.

    make integration                                    every package
    make integration PACKAGES="crd apiserver/cel"       some
    make integration PACKAGES=auth RUN=PodSecurity      the tests whose names match
    make integration PACKAGES=auth ARGS=--in-process    the same tests with a kube-apiserver in process, and etcd

Results stay in .cache/integration: results.json, and a folder of logs for each test. --again runs the tests that did
not pass; --table prints the table of docs/conformance.md from the results.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.integration import databases, programs, running, sources, table, verdicts
from kubechronicle.ops.development.integration.outcomes import PASS, Outcome
from kubechronicle.ops.development.integration.programs import Package
from kubechronicle.ops.development.integration.running import Site
from kubechronicle.ops.development.integration.sources import CACHE
from kubechronicle.ops.development.integration.verdicts import ETCD, Key
from kubechronicle.ops.development.server_process import ServerProcess

TIMEOUT: Final = 240
"""Seconds for a test. The slowest passes after two minutes on two cores."""
Results = dict[Key, Outcome]


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    file = CACHE / ("results-in-process.json" if options.in_process else "results.json")
    known, said = load(file), verdicts.load(verdicts.FILE.read_text())
    if options.table:
        print(table.markdown(known.values(), said))
        return 0
    go = reference.find_go()
    sources.prepare(go)
    packages = [Package(name) for name in options.packages] or programs.all_packages()
    broken = programs.build(go, packages, _say)
    running.make_keys()
    program = ServerProcess.command()[0]
    with databases.running(CACHE / "database", program) as found:
        etcd = running.etcd_folder() if options.in_process else None
        site = Site(databases=found, program=program, flags=running.flags_of(program), etcd=etcd)
        wanted = [(package, test) for package in packages if package not in broken for test in package.tests()]
        work = [
            (package, test)
            for package, test in wanted
            if re.search(options.run, test)
            and (options.in_process or _kind(said, package, test) != ETCD)
            and not (options.again and _has_passed(known, package, test))
        ]
        _say(f"{len(work)} tests")
        made = _run_all(site, work, options, known, file)
    return _judge(made, broken, {} if options.in_process else said)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", help="folders below test/integration; crd: those of definitions")
    parser.add_argument("--run", default="", help="a regular expression for the names of tests")
    parser.add_argument("--again", action="store_true", help="leave out tests that have passed")
    parser.add_argument("--in-process", action="store_true", help="run upstream's own servers, with etcd")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=TIMEOUT, help="seconds for each test")
    parser.add_argument("--table", action="store_true", help="print the results as a table")
    return parser


def _kind(said: dict[Key, verdicts.Verdict], package: Package, test: str) -> str:
    verdict = said.get((package.name, test))
    return "" if verdict is None else verdict.kind


def _has_passed(known: Results, package: Package, test: str) -> bool:
    outcome = known.get((package.name, test))
    return outcome is not None and outcome.outcome == PASS


def _run_all(
    site: Site, work: Iterable[tuple[Package, str]], options: argparse.Namespace, known: Results, file: Path
) -> list[Outcome]:
    """Run the tests, some at a time, and save each outcome at once."""
    numbers, made = itertools.count(1), []

    def one(place: tuple[Package, str]) -> Outcome:
        return running.run(site, *place, number=next(numbers), timeout=options.timeout)

    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(one, work):
            made.append(outcome)
            known[outcome.package, outcome.test] = outcome
            save(file, known)
            count = f"{len(outcome.passed)} passed, {len(outcome.failed)} failed"
            _say(f"{outcome.package} {outcome.test}: {outcome.outcome} ({count}) {outcome.seconds:.0f} s")
    return made


def load(file: Path) -> Results:
    """Return the outcomes of former runs."""
    listed = json.loads(file.read_text()) if file.exists() else []
    return {(each["package"], each["test"]): Outcome(**each) for each in listed}


def save(file: Path, results: Results) -> None:
    """Write the outcomes, one a line."""
    lines = ",\n".join(json.dumps(asdict(results[key])) for key in sorted(results))
    new = file.with_suffix(".new")
    new.write_text(f"[\n{lines}\n]\n")
    new.replace(file)


def _judge(made: list[Outcome], broken: list[Package], said: dict[Key, verdicts.Verdict]) -> int:
    faults = verdicts.unexplained(made, said)
    for each in verdicts.outdated(made, said):
        _say(f"{each.package} {each.test} passes: its verdict in {verdicts.FILE.name} can go")
    for each in faults:
        shown = ", ".join(each.failed[:3]) or each.outcome
        _say(f"FAULT {each.package} {each.test}: {shown}")
    for package in broken:
        _say(f"FAULT {package.name} does not compile")
    passed = sum(each.outcome == PASS for each in made)
    _say(f"{passed} of {len(made)} tests pass; {len(faults)} fail without a verdict")
    return 1 if faults or broken else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
