"""`make differential`: send the same generated requests to a real kube-apiserver and to this server."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubechronicle.ops.development.differential import catalogue, reference, report, shrink, work
from kubechronicle.ops.development.differential.seeds import Seeds
from kubechronicle.ops.development.differential.sequences import AREAS
from kubechronicle.ops.development.differential.transport import Connection, Target


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="time of the run (default 600)")
    parser.add_argument(
        "--requests", type=int, default=0, help="end after so many compared requests (default: by time)"
    )
    parser.add_argument("--seed", default="1", help="seed of all choices (default 1)")
    parser.add_argument("--only", metavar="SEED", help="replay one sequence, and print its steps and differences")
    parser.add_argument("--areas", nargs="*", choices=sorted(AREAS), default=sorted(AREAS))
    parser.add_argument("--kinds", nargs="*", default=[], help="kinds or plurals (default: all)")
    parser.add_argument("--workers", type=int, default=work.WORKERS)
    parser.add_argument(
        "--reference", metavar="URL", help="a running kube-apiserver of the served version (default: one is started)"
    )
    parser.add_argument("--reference-token-file", type=Path, metavar="FILE")
    parser.add_argument("--ours", metavar="URL", help="a running kubechronicle (default: one is started)")
    parser.add_argument("--ours-token-file", type=Path, metavar="FILE")
    parser.add_argument(
        "--flags", default="", help="more flags of both servers, such as --flags=--emulated-version=1.33"
    )
    parser.add_argument("--recorded", type=Path, metavar="FOLDER", help="recorded cases whose bodies are seeds")
    parser.add_argument("--report", type=Path, default=Path(".cache/differential/report.md"), metavar="FILE")
    parser.add_argument("--no-shrink", action="store_true")
    return parser.parse_args(argv)


@contextlib.contextmanager
def targets(options: argparse.Namespace) -> Iterator[tuple[Target, Target]]:
    with contextlib.ExitStack() as stack:
        if options.reference:
            token = options.reference_token_file.read_text().strip() if options.reference_token_file else ""
            first = Target(options.reference, token)
        else:
            first = stack.enter_context(reference.reference_server(flags=options.flags.split()))
        if options.ours:
            token = options.ours_token_file.read_text().strip() if options.ours_token_file else first.token
            second = Target(options.ours, token)
        else:
            second = stack.enter_context(reference.our_server(flags=options.flags.split()))
        yield first, second


def commit() -> str:
    process = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return process.stdout.strip() or "unknown"


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        with targets(options) as (first, second):
            reference.check_version(Connection(first))
            known = catalogue.load(Connection(first))
            recorded = options.recorded if options.recorded and (options.recorded / "cases").is_dir() else None
            plan = work.Plan(
                first, second, options.seed, known, Seeds(known, recorded), options.seconds, options.requests,
                frozenset(options.areas), frozenset(options.kinds), options.workers,
            )  # fmt: skip
            if options.only:
                return shrink.replay(plan, options.only)
            totals, groups, seconds = work.run(plan)
            if not options.no_shrink:
                shrink.shrink_all(plan, groups)
            report.write(options.report, totals, groups, seconds, options.seed, commit())
    except reference.Unavailable as error:
        print(f"differential: skipped: {error}")
        return 0
    except reference.StartError as error:
        print(f"differential: kubechronicle did not start: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
        return 1
    print(
        f"differential: {totals.requests} requests in {seconds:.0f} s; "
        f"core differences {totals.core} ({report.percent(totals.core, totals.requests)}), "
        f"strict only {totals.strict} ({report.percent(totals.strict, totals.requests)}); {options.report}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
