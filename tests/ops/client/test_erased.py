"""Commands on erased history: they report it, and never restore or delete erased states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubechronicle.eventlog.memory.erase import erase
from kubechronicle.eventlog.records import Key

Chronicle = Callable[..., Any]
NAMES = iter(f"vault-{number}" for number in range(100))
MARK = "hunter2"


@pytest.fixture
def vault(running: Any) -> tuple[str, int]:
    """Return a namespace and a revision at which it has three ConfigMaps.

    kept: of three states, the first two are erased
    gone: deleted and erased
    whole: not erased
    """
    space = next(NAMES)
    maps = f"/api/v1/namespaces/{space}/configmaps"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    for name in ("kept", "gone", "whole"):
        running.ask("POST", maps, {"metadata": {"name": name}, "data": {"a": MARK, "b": "x"}})
    then = running.ask("PATCH", f"{maps}/kept", {"data": {"a": f"{MARK}-2"}})
    running.ask("PATCH", f"{maps}/kept", {"data": {"a": "3"}})
    running.ask("DELETE", f"{maps}/gone")

    async def erase_states() -> None:
        for name in ("kept", "gone"):
            assert len(erase(running.server.log.store, Key("configmaps", space, name))) == 2
        await running.server.get(maps)

    running.run(erase_states)
    return space, int(then["metadata"]["resourceVersion"])


def test_log_and_blame(chronicle: Chronicle, vault: tuple[str, int]) -> None:
    space, _ = vault
    output = chronicle("log", "configmap/kept", "-n", space)
    assert [output.code, MARK in output.out] == [0, False]
    assert output.out.count("the object is erased from history") == 2
    assert output.out.count("the object before this change is erased from history") == 1
    assert "deleted; the object is erased" in chronicle("log", "configmap/gone", "-n", space).out
    assert '"erased": true' in chronicle("log", "configmap/kept", "-n", space, "-o", "json").out
    blame = chronicle("blame", "configmap/kept", "-n", space)
    assert (blame.code, "erased from history" in blame.out) == (0, True)
    assert "<erased>" in chronicle("between", "1", "now", "-n", space, "-v").out


def test_who(chronicle: Chronicle, vault: tuple[str, int]) -> None:
    space, _ = vault
    output = chronicle("who", "set", "configmap/kept", "data.b", "-n", space)
    assert (output.code, "are erased from history" in output.err) == (2, True)
    output = chronicle("who", "deleted", "configmap/gone", "-n", space)
    assert (output.code, "admin deleted configmap/gone" in output.out) == (0, True)


def test_past_states(chronicle: Chronicle, vault: tuple[str, int]) -> None:
    space, then = vault
    at = ("-n", space, "--at", str(then))
    output = chronicle("export", *at)
    assert (output.code, "not exported: configmaps: 2 configmaps left out" in output.err) == (1, True)
    assert "name: whole" in output.out
    assert "name: kept" not in output.out
    output = chronicle("export", "configmap/kept", *at)
    assert (output.code, output.err.count("\n"), "was erased from history" in output.err) == (2, 1, True)
    output = chronicle("diff", "-n", space, "--from", str(then))
    assert "not compared: configmaps: 2 configmaps left out" in output.err
    output = chronicle("diff", "configmaps", "-n", space, "--from", str(then))
    assert "not compared: configmaps: 2 configmaps left out" in output.err


def test_prune_keeps_kinds_with_erased_states(chronicle: Chronicle, vault: tuple[str, int], running: Any) -> None:
    space, then = vault
    output = chronicle("restore", "-n", space, "--to", str(then), "--prune", "--yes")
    assert (output.code, "configmaps: not read: 2 configmaps left out" in output.out) == (3, True)
    assert running.ask("GET", f"/api/v1/namespaces/{space}/configmaps/kept")["data"]["a"] == "3"
    output = chronicle("restore", "configmap/gone", "-n", space, "--to", str(then), "--yes")
    assert (output.code, "was erased from history" in output.err) == (2, True)
