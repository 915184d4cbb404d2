"""Every flag of kube-apiserver: with its meaning, accepted with a warning, or refused with a line."""

from __future__ import annotations

import pytest

from kubechronicle.api.kinds import SERVED
from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.kinds import running
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.flags import foreign
from kubechronicle.ops.settings.settings import BY_NAME

NAMES = list(running.facts(SERVED)["flags"])
COMMANDS = {"help", "version"}
"""Flags that print something and quit; the command line has them."""


def test_every_flag_is_known() -> None:
    assert [name for name in NAMES if name not in BY_NAME | foreign.BY_NAME and name not in COMMANDS] == []
    assert not BY_NAME.keys() & foreign.BY_NAME.keys()


def test_the_list_is_that_of_the_program() -> None:
    program = reference.CACHE / "kube-apiserver"
    if not program.is_file():
        pytest.skip("kube-apiserver has not been built; `make differential` does that")
    assert sorted(running.flags_of(reference.output_of(program, "--help"))) == NAMES


def test_a_flag_without_a_meaning() -> None:
    assert foreign.check({"etcd-healthcheck-timeout": "2s"}) == [
        "--etcd-healthcheck-timeout has no effect: there is no etcd"
    ]
    assert foreign.check({"watch-cache": True, "storage-backend": "etcd3", "contention-profiling": "false"}) == []
    for name, value, stands_in in (
        ("etcd-servers", "https://127.0.0.1:2379", "--database-url"),
        ("etcd-cafile", "ca.crt", "sslrootcert"),
        ("storage-backend", "etcd2", "--database-url"),
        ("debug-socket-path", "/run/x", "/debug/pprof/profile"),
    ):
        with pytest.raises(OperatorError, match=f"^--{name}: .*{stands_in}"):
            foreign.check({name: value})
