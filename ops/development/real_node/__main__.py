"""Run Kubernetes' end-to-end tests on a real node: ``python -m kubechronicle.ops.development.real_node``.

    make test-node E2E='\\[sig-api-machinery\\]'            conformance specs whose names match, with kubechronicle
    … --server real --focus '\\[Conformance\\]'             with a real kube-apiserver instead
    … --server real --failed                               only the specs that failed with kubechronicle
    … --stay                                               no specs: run the cluster until Ctrl-C

Results are collected in .cache/node/results-SERVER.json, and .cache/node/results-SERVER.md shows them. The exit code is
1 if a spec failed, 2 if no real node can run here; one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from kubechronicle.ops.development.real_node import specs
from kubechronicle.ops.development.real_node.node import StartServer, running_node
from kubechronicle.ops.development.real_node.programs import CACHE, NODE, ROOT, SPECS, Unavailable, build
from kubechronicle.ops.development.real_node.servers import our_server, real_server

# One spec waits for ten minutes until the history of PodTemplates ends, as etcd's does after five.
RETENTION = ["--history-retention", "podtemplates=5m"]
SERVERS: dict[str, StartServer] = {"ours": partial(our_server, arguments=RETENTION), "real": real_server}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m kubechronicle.ops.development.real_node", description=__doc__)
    made.add_argument("--server", choices=SERVERS, default="ours", help="kubechronicle, or a real kube-apiserver")
    made.add_argument("--focus", default="", help="a regular expression: run conformance specs whose names match")
    made.add_argument("--skip", action="append", default=[], help="a regular expression of specs to leave out")
    made.add_argument("--failed", action="store_true", help="run the specs that failed with kubechronicle")
    made.add_argument("--new", action="store_true", help="run only specs without a result yet")
    made.add_argument("--processes", type=int, default=4, help="specs that run at once")
    made.add_argument("--minutes", type=float, default=60.0, help="the time limit")
    made.add_argument("--stay", action="store_true", help="run the cluster until Ctrl-C, without specs")
    return made


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    for signum in (signal.SIGINT, signal.SIGTERM):  # SIGINT, too: a shell ignores it for programs in the background
        signal.signal(signum, signal.default_int_handler)
    try:
        return run(arguments)
    except Unavailable as error:
        print(f"real node: {error}", file=sys.stderr)
        return 2


def run(arguments: argparse.Namespace) -> int:
    build([*NODE, *SPECS])
    subprocess.run([ROOT / "tests" / "clients" / "prepare.sh", "kubectl"], check=True)
    with running_node(SERVERS[arguments.server]) as node:
        if arguments.stay:
            print(f"the cluster runs; export KUBECONFIG={node.admin}", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
            return 0
        path = CACHE / f"results-{arguments.server}.json"
        focus, skip = selection(arguments, done=specs.load(path), ours=specs.load(CACHE / "results-ours.json"))
        results = specs.run_specs(
            node, focus=focus, skip=skip, processes=arguments.processes, minutes=arguments.minutes
        )
    merged = specs.merge(path, results)
    path.with_suffix(".md").write_text(specs.table(merged))
    print(specs.table({result.name: result for result in results}))
    return 1 if any(result.state not in ("passed", "skipped") for result in results) else 0


def selection(
    arguments: argparse.Namespace, *, done: dict[str, specs.Result], ours: dict[str, specs.Result]
) -> tuple[str, list[str]]:
    """Return the expressions of the specs to run and of those to leave out."""
    skip = list(arguments.skip)
    if arguments.failed:
        failed = [result.name for result in ours.values() if result.state not in ("passed", "skipped")]
        return "|".join(map(re.escape, failed)) or "no failures", skip
    if arguments.new:
        skip += [re.escape(name) for name in done]
    return (f"(?:{arguments.focus}).*{specs.CONFORMANCE}" if arguments.focus else specs.CONFORMANCE), skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
