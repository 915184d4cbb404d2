"""The commands where history was erased: they say so, and restore nothing into a state nobody knows."""

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
    """A namespace with a ConfigMap of which all but the last of three states are erased, one that was deleted and
    erased, and one nobody has touched; and a revision at which there were all."""
    space = next(NAMES)
    maps = f"/api/v1/namespaces/{space}/configmaps"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    for name in ("kept", "gone", "whole"):
        running.ask("POST", maps, {"metadata": {"name": name}, "data": {"a": MARK, "b": "x"}})
    then = running.ask("PATCH", f"{maps}/kept", {"data": {"a": f"{MARK}-2"}})
    running.ask("PATCH", f"{maps}/kept", {"data": {"a": "3"}})
    running.ask("DELETE", f"{maps}/gone")

    async def erased() -> None:
        for name in ("kept", "gone"):
            assert len(erase(running.server.log.store, Key("configmaps", space, name))) == 2
        await running.server.get(maps)

    running.run(erased)
    return space, int(then["metadata"]["resourceVersion"])


def test_log_and_blame(chronicle: Chronicle, vault: tuple[str, int]) -> None:
    space, _ = vault
    said = chronicle("log", "configmap/kept", "-n", space)
    assert [said.code, MARK in said.out] == [0, False]
    assert said.out.count("what it was is erased from history") == 2
    assert said.out.count("what it was before is erased from history") == 1
    assert "deleted; what it was is erased" in chronicle("log", "configmap/gone", "-n", space).out
    assert '"erased": true' in chronicle("log", "configmap/kept", "-n", space, "-o", "json").out
    blame = chronicle("blame", "configmap/kept", "-n", space)
    assert (blame.code, "erased from history" in blame.out) == (0, True)
    assert "<erased>" in chronicle("between", "1", "now", "-n", space, "-v").out


def test_who(chronicle: Chronicle, vault: tuple[str, int]) -> None:
    space, _ = vault
    said = chronicle("who", "set", "configmap/kept", "data.b", "-n", space)
    assert (said.code, "is erased from history" in said.err) == (2, True)
    said = chronicle("who", "deleted", "configmap/gone", "-n", space)
    assert (said.code, "admin deleted configmap/gone" in said.out) == (0, True)


def test_states_of_then(chronicle: Chronicle, vault: tuple[str, int]) -> None:
    space, then = vault
    at = ("-n", space, "--at", str(then))
    said = chronicle("export", *at)
    assert (said.code, "not exported: configmaps: 2 configmaps left out" in said.err) == (1, True)
    assert "name: whole" in said.out
    assert "name: kept" not in said.out
    said = chronicle("export", "configmap/kept", *at)
    assert (said.code, said.err.count("\n"), "was erased from history" in said.err) == (2, 1, True)
    said = chronicle("diff", "-n", space, "--from", str(then))
    assert "not compared: configmaps: 2 configmaps left out" in said.err
    said = chronicle("diff", "configmaps", "-n", space, "--from", str(then))
    assert "not compared: configmaps: 2 configmaps left out" in said.err


def test_what_nobody_knows_is_not_pruned(chronicle: Chronicle, vault: tuple[str, int], running: Any) -> None:
    space, then = vault
    said = chronicle("restore", "-n", space, "--to", str(then), "--prune", "--yes")
    assert (said.code, "not looked at: configmaps: 2 configmaps left out" in said.err) == (1, True)
    assert running.ask("GET", f"/api/v1/namespaces/{space}/configmaps/kept")["data"]["a"] == "3"
    said = chronicle("restore", "configmap/gone", "-n", space, "--to", str(then), "--yes")
    assert (said.code, "was erased from history" in said.err) == (2, True)
