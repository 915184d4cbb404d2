"""`bisect`: the flips, the summary, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Chronicle = Callable[..., Any]


def test_bisect_an_object(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, _ = shop
    output = chronicle("bisect", "self.spec.replicas == 5", "deploy/web", "-n", name)
    assert output.code == 0
    lines = output.out.splitlines()
    assert lines[0].startswith("began   revision ")
    assert lines[0].endswith(f"admin, changing deployments.apps/web -n {name}")
    summary = f"self.spec.replicas == 5 flipped 1 time in deployment.apps/web in namespace {name}; at revision "
    assert lines[2].startswith(summary)
    assert lines[2].endswith(" it holds for 1 object.")
    assert "flips by  admin (1)" in output.out
    document = chronicle("bisect", "self.spec.replicas == 5", "deploy/web", "-n", name, "-o", "json").json()
    assert [each["holds"] for each in document["items"]] == [True]
    assert document["first"]["request"]["verb"] == "patch"
    never = chronicle("bisect", "self.spec.replicas == 7", "deploy/web", "-n", name)
    assert (never.code, "never held in deployment.apps/web" in never.out) == (1, True)


def test_bisect_a_kind_a_namespace_and_the_cluster(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    expression = "self.metadata.name == 'settings'"
    for words in (("configmaps", "-n", name), ("-n", name)):
        output = chronicle("bisect", expression, *words)
        assert [line.split()[0] for line in output.out.splitlines()[:2]] == ["began", "ceased"]
        assert "admin, deleting configmaps/settings" in output.out
        assert "it does not hold any more" in output.out
    begun = chronicle("bisect", expression, "cm", "-n", name, "--since", str(revision), "-o", "json").json()
    assert (begun["initially"], begun["flips"]) == (1, 1)
    whole = chronicle("bisect", f"self.metadata.name == '{name}'", "-A", "--limit", "1", "-o", "json").json()
    assert whole["first"]["object"] == {
        "resource": "namespaces",
        "name": name,
        "uid": whole["first"]["object"]["uid"],
    }


def test_bisect_names_what_it_could_not_judge(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, _ = shop
    output = chronicle("bisect", "self.data.color == 'blue'", "cm", "-n", name)
    assert "the expression failed and did not hold, first at revision" in output.err
    assert "no such key" in output.err
    wrong = chronicle("bisect", "self.spec.", "deploy/web", "-n", name)
    assert (wrong.code, "Syntax error" in wrong.err) == (2, True)
