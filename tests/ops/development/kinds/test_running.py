"""The names of a running kube-apiserver: how they are read, and the root paths that this server lacks."""

from __future__ import annotations

import re

from in_process import open_server
from trio.testing import MockClock

from kubechronicle.api.kinds import SERVED
from kubechronicle.ops.development.kinds import report, running


def test_flags_have_a_type_and_switches_none() -> None:
    lines = ("Flags:", "", "      --audit-log-path string   If set.", "      --allow-privileged   If true.")
    text = "\n".join((*lines, "  -h, --help   Help for --x."))
    assert running.flags_of(text) == {"audit-log-path": "string", "allow-privileged": "", "help": ""}


def test_metrics_have_a_type() -> None:
    text = "# HELP a_total An a.\n# TYPE a_total counter\na_total 1\n# TYPE go_threads gauge\n"
    assert running.metrics_of(text) == {"a_total": "counter"}


def test_the_file_has_all_three_sorts_of_names() -> None:
    found = running.facts(SERVED)
    assert found["flags"]["etcd-servers"] == "strings"
    assert found["metrics"]["apiserver_request_total"] == "counter"
    assert "/readyz" in found["paths"]


async def test_every_root_path_is_served_or_explained(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        served = (await server.get("/"))["paths"]
    listed = running.facts(SERVED)["paths"]
    assert report.missing_paths(listed, served) == []
    for pattern in report.UNSERVED_PATHS:
        assert any(re.fullmatch(pattern, path) for path in set(listed) - set(served)), pattern
