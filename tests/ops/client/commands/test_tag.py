"""`tag`: its three actions, tags as moments of other commands; and reasons, given and searched."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from server_in_thread import Running

Chronicle = Callable[..., Any]

_names = (f"release-{number}" for number in itertools.count(1))


@pytest.fixture
def release(chronicle: Chronicle, shop: tuple[str, int]) -> str:
    """Return a tag of the revision at which the objects of the shop exist."""
    name = next(_names)
    output = chronicle("tag", "create", name, "--at", str(shop[1]), "--reason", "before the change")
    assert output.code == 0, output.err
    assert output.out.startswith(f"tag {name} names revision {shop[1]}, 20")
    return name


def test_tags_are_listed_and_deleted(chronicle: Chronicle, release: str, shop: tuple[str, int]) -> None:
    listed = chronicle("tag", "list", release).out.splitlines()
    assert listed[0].split() == ["NAME", "REVISION", "TIME", "USER", "HISTORY", "REASON"]
    assert listed[1].split()[:2] == [release, str(shop[1])]
    assert listed[1].endswith("admin  kept     before the change")
    change = chronicle("log", f"tag/{release}", "-o", "json").json()["items"][0]
    assert (change["operation"], change["reason"]) == ("Create", "before the change")
    again = chronicle("tag", "create", release)
    assert (again.code, "already exists" in again.err) == (2, True)
    deleted = chronicle("tag", "delete", release, "--reason", "not released")
    assert deleted.out == f"tag {release} is deleted; the history that it named is not\n"
    assert f"there is no tag {release}; kubectl get tags lists them" in chronicle("tag", "list", release).err
    assert f"there is no tag {release}" in chronicle("diff", "-n", shop[0], "--from", f"tag:{release}").err
    change = chronicle("log", f"tag/{release}", "-o", "json").json()["items"][0]
    assert (change["operation"], change["reason"]) == ("Delete", "not released")


def test_a_tag_is_a_moment_of_every_command(chronicle: Chronicle, release: str, shop: tuple[str, int]) -> None:
    name, revision = shop
    tag, space = f"tag:{release}", ("-n", name)

    def commands(at: str) -> list[list[str]]:
        return [
            ["diff", "deployment/web", *space, "--from", at, "-o", "json"],
            ["log", *space, "--since", at, "-o", "json"],
            ["log", *space, "--until", at, "-o", "json"],
            ["between", at, "now", *space, "-o", "json"],
            ["export", *space, "--at", at],
            ["restore", *space, "--to", at, "--dry-run", "-o", "json"],
        ]

    for tagged, numbered in zip(commands(tag), commands(str(revision)), strict=True):
        found, expected = chronicle(*tagged), chronicle(*numbered)
        assert (found.code, found.out) == (expected.code, expected.out), (tagged, found.err, expected.err)
        assert found.out
    allowed = chronicle("can-i", "get", "pods", *space, "--as", "joe", "--at", tag)
    assert (allowed.code, f"(revision {revision})" in allowed.out) == (1, True)
    assert "is later than" in chronicle("log", *space, "--since", tag, "--until", str(revision - 1)).err


def test_reasons_are_given_shown_and_searched(chronicle: Chronicle, running: Running, shop: tuple[str, int]) -> None:
    name, revision = shop
    before = running.ask("GET", f"/api/v1/namespaces/{name}/configmaps")["metadata"]["resourceVersion"]
    restored = chronicle(
        "restore", "deployment/web", "-n", name, "--to", str(revision), "-y", "--reason", f"undo for {name}: née"
    )
    assert restored.code == 0, restored.err
    found = chronicle("log", "-n", name, "--reason", f"UNDO FOR {name}")
    assert found.out.count("\nrevision ") + found.out.startswith("revision ") >= 1
    assert f"  reason: undo for {name}: née\n" in found.out
    who = chronicle("who", "changed", "deployment/web", "-n", name, "--since", before)
    assert f"reason    undo for {name}: née" in who.out
    nothing = chronicle("log", "-n", name, "--reason", "no such reason")
    assert "no changes" in nothing.err
    bad = chronicle("restore", "deployment/web", "-n", name, "--to", str(revision), "-y", "--reason", "a\nb")
    assert (bad.code, "the reason must be printable text" in bad.err) == (2, True)
