"""The registry follows the definitions, in the step that applies their changes."""

from __future__ import annotations

from typing import Any

import pytest
from custom.definitions import definition, established, version
from view_objects import ViewObjects

from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.definition import DEFINITIONS, Description
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.eventlog.records import Head, Key


class Cluster(ViewObjects):
    def __init__(self) -> None:
        super().__init__()
        self.current = CurrentRegistry(builtin_registry(), self.views, Description())

    def define(self, obj: dict[str, Any]) -> None:
        self.put(DEFINITIONS, "", obj["metadata"]["name"], obj)

    def undefine(self, name: str = "widgets.example.com") -> None:
        self.delete(Key(DEFINITIONS, "", name))

    def served(self, version: str = "v1", plural: str = "widgets") -> ResourceType | None:
        return self.current.registry.lookup("example.com", version, plural)


def test_a_definition_is_served_from_the_step_that_establishes_it() -> None:
    cluster = Cluster()
    assert cluster.current.registry is builtin_registry()
    cluster.define(definition())
    assert cluster.served() is None
    assert cluster.current.registry is builtin_registry()
    cluster.define(established(definition()))
    assert cluster.served() is not None
    assert cluster.current.registry.groups()[-1] == "example.com"
    cluster.undefine()
    assert cluster.served() is None
    assert cluster.current.registry.groups() == builtin_registry().groups()


def test_types_stay_the_same_objects_until_what_they_serve_changes() -> None:
    cluster = Cluster()
    cluster.define(established(definition()))
    before, registry = cluster.served(), cluster.current.registry
    labelled = established(definition())
    labelled["metadata"]["labels"] = {"a": "b"}
    cluster.define(labelled)
    cluster.define(established(definition(plural="gadgets")))
    assert cluster.served() is before
    assert cluster.current.registry is not registry
    cluster.define(established(definition(version(subresources={"status": {}}))))
    assert cluster.served() is not before


def test_a_terminating_definition_shares_the_compiled_parts() -> None:
    cluster = Cluster()
    cluster.define(established(definition()))
    before = cluster.served()
    assert before is not None
    part = before.custom.part("x", lambda custom: object())
    cluster.define(established(definition(), "Terminating"))
    after = cluster.served()
    assert after is not None
    assert after is not before
    assert after.custom.terminating
    assert after.custom.part("x", lambda custom: object()) is part


def test_an_unserved_version_is_known_but_has_no_path() -> None:
    cluster = Cluster()
    cluster.define(established(definition(version("v1", served=False), version("v2"))))
    assert cluster.served("v1") is None
    assert cluster.served("v2") is not None
    stored = cluster.current.registry.storage("widgets.example.com")
    assert stored is not None
    assert stored.version == "v1"
    assert stored in cluster.current.registry.stored()


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster: cluster.undefine(),
        lambda cluster: cluster.define(established(definition(version("v1", served=False), version("v2")))),
        lambda cluster: cluster.define(established(definition(), uid="another")),
    ],
)
def test_watches_end_when_what_they_began_with_is_gone(change: Any) -> None:
    cluster = Cluster()
    cluster.define(established(definition()))
    cluster.define(established(definition(plural="gadgets")))
    ended: list[str] = []
    widgets, gadgets = cluster.served(), cluster.served(plural="gadgets")
    assert widgets is not None
    assert gadgets is not None
    with (
        cluster.current.ended_with(widgets, lambda: ended.append("widgets")),
        cluster.current.ended_with(gadgets, lambda: ended.append("gadgets")),
    ):
        cluster.define(established(definition(), "Terminating"))
        assert ended == []
        change(cluster)
        assert ended == ["widgets"]
    cluster.undefine("gadgets.example.com")
    assert ended == ["widgets"]


def test_a_watch_that_begins_on_a_former_type_ends_at_once() -> None:
    cluster = Cluster()
    cluster.define(established(definition()))
    widgets = cluster.served()
    assert widgets is not None
    cluster.undefine()
    ended: list[str] = []
    with cluster.current.ended_with(widgets, lambda: ended.append("widgets")):
        assert ended == ["widgets"]


@pytest.mark.parametrize(
    ("group", "plural"),
    [("apps", "deployments"), ("history.kubechronicle.dev", "erasures"), ("kubechronicle.dev", "widgets")],
)
def test_built_in_and_own_resources_cannot_be_defined(group: str, plural: str) -> None:
    cluster = Cluster()
    cluster.define(established(definition(version("v9"), group=group, plural=plural)))
    assert cluster.current.registry is builtin_registry()


@pytest.mark.parametrize("spec", [None, {}, {"group": "example.com"}, {"group": "example.com", "versions": [1]}])
def test_a_malformed_definition_is_not_served_and_stops_nothing(spec: Any) -> None:
    cluster = Cluster()
    cluster.define({**established(definition()), "spec": spec})
    assert cluster.served() is None
    cluster.define(established(definition()))
    assert cluster.served() is not None


def test_a_reloaded_state_replaces_the_definitions() -> None:
    cluster = Cluster()
    cluster.define(established(definition()))
    cluster.define(established(definition(plural="gadgets")))
    gadgets = cluster.served(plural="gadgets")
    kept = [entry for entry in cluster.views[DEFINITIONS].entries() if entry.key.name.startswith("gadgets")]
    cluster.views.load({DEFINITIONS: kept}, Head(revision=9, compacted=0))
    assert cluster.served() is None
    assert cluster.served(plural="gadgets") is gadgets
