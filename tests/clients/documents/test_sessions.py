"""The pages' commands, run as a reader types them, print what the pages show.

All pages share one server, which begins as the README's first command begins one. With KUBECHRONICLE_WRITE_PAGES, the
outputs of this run are written into the pages (`make pages`).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import postgres_fixture
import pytest
from documents import shown_output
from documents.pages import PAGES, parts
from documents.quick_commands import quick_commands
from documents.session import session
from harness import BINARIES, ROOT, SERVERS, Server, home, prepare
from programs import Kubectl

WRITE = bool(os.environ.get("KUBECHRONICLE_WRITE_PAGES"))
# What the pages ask for beside `make serve`. docs/audit.md shows the policy of recorded reads.
RECORDED = """\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, userGroups: ["system:nodes"], resources: [{group: "", resources: [serviceaccounts/token]}]}
- {level: Metadata}
"""
"""The policy of docs/audit.md."""
READS = next(part.text for part in parts(ROOT / "docs" / "audit.md") if part.kind == "yaml")
INITIAL = {"default", "kube-node-lease", "kube-public", "kube-system"}
# The first pages expect a new cluster. After the last ones, history is not whole any more.
FIRST, LAST = ("README.md", "forensics.md"), ("feeds.md", "erasure.md")
SESSIONS = sorted(
    (page for page in PAGES if any(part.is_run for part in parts(page))),
    key=lambda page: (
        FIRST.index(page.name) if page.name in FIRST else len(FIRST),
        LAST.index(page.name) if page.name in LAST else -1,
    ),
)


@pytest.fixture(scope="module")
def begun() -> Iterator[Server]:
    """The server of all pages, and beside its data the programs of `make install`."""
    prepare("kubectl", "helm")
    with home("pages") as place:
        (place / ".venv").symlink_to(ROOT / ".venv")
        policy = place / "reads.yaml"
        policy.write_text(READS)
        recorded = place / "record.yaml"
        recorded.write_text(RECORDED)
        flags = ["--enable-ui", "--audit-reads-policy-file", str(policy), "--record", str(recorded)]
        server = Server(place / "data", arguments=flags, port=postgres_fixture.free_port())
        SERVERS.append(server)
        try:
            with quick_commands(place / "bin"):
                yield server.start()
        finally:
            server.close()


def test_the_first_command(begun: Server) -> None:
    """`make serve` of the README runs the command of the fixture, which prints the line shown there."""
    typed = ["make", "-n", "--no-print-directory", "serve", "PORT=6443", "DATA=data"]
    made = subprocess.run(typed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert made.rstrip().endswith("exec .venv/bin/kubechronicle serve --secure-port 6443 --data-dir data")
    [first, *_] = [part for part in parts(ROOT / "README.md") if part.kind == "console"]
    [command] = first.commands()
    assert command.text == "make serve"
    [ready] = [line for line in begun.log.read_text().splitlines() if line.startswith("kubechronicle is ready")]
    assert shown_output.compare(command.output, ready.replace(f"{begun.data_dir.parent}/", ""))


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_real_output(page: Path, begun: Server, tmp_path: Path) -> None:
    with session(page, begun.data_dir.parent, tmp_path) as run:
        try:
            run.run()
        finally:
            kubectl = Kubectl(str(BINARIES / "kubectl"), begun, tmp_path)
            found = kubectl("get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}").split()
            if made := sorted(set(found) - INITIAL):
                kubectl("delete", "namespace", *made)
        if WRITE:
            page.write_text(run.refreshed())
        else:
            assert not run.wrong, "\n\n".join(run.wrong)
