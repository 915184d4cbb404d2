"""Sequences: bodies of their own, patches from one object to another, and limits on effects on others."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.guards import guard, own_addresses
from kubechronicle.ops.development.differential.objects import portable
from kubechronicle.ops.development.differential.patches import merge_patch, strategic_patch
from kubechronicle.ops.development.differential.queries import LIST_PARAMETERS, of_one_object, query
from kubechronicle.ops.development.differential.seeds import Seeds
from kubechronicle.ops.development.differential.texts import duplicated

PRIORITY = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, frozenset(), None)


def test_every_sample_is_an_object_of_a_kind() -> None:
    seeds = Seeds(Catalogue())
    assert len(seeds.samples) > 60
    for (version, kind), samples in seeds.samples.items():
        assert version
        assert kind
        json.dumps(samples)


def test_guards_take_out_effects_on_others() -> None:
    body: dict[str, Any] = {"globalDefault": True, "metadata": {"name": "shared"}}
    guard(PRIORITY, body)
    assert body == {"globalDefault": False, "metadata": {"name": "shared$ID"}}


def test_addresses_and_ports_move_together() -> None:
    body = {"spec": {"clusterIP": "10.96.77.14", "clusterIPs": ["10.96.77.14"], "ports": [{"nodePort": 30080}]}}
    moved = own_addresses(Random(1), body)["spec"]
    assert moved["clusterIP"] == moved["clusterIPs"][0] != "10.96.77.14"
    assert 30000 <= moved["ports"][0]["nodePort"] < 32768
    assert own_addresses(Random(2), {"a": "10.96.0.1"}) == {"a": "10.96.0.1"}


def test_a_stored_object_is_one_for_both_servers() -> None:
    stored = {
        "metadata": {"name": "a", "uid": "<uid:1.1>", "resourceVersion": "<rv:1.1>", "managedFields": [{}]},
        "status": {"startTime": "<time>", "phase": "x"},
    }
    assert portable(stored) == {
        "metadata": {"name": "${name}", "uid": "${uid}", "resourceVersion": "${rv}"},
        "status": {"phase": "x"},
    }


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"a": 1, "b": {"c": 3}}, {"b": {"c": 3, "d": None}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
        ({"a": 1}, {}, {"a": None}),
    ],
)
def test_a_merge_patch_leads_to_the_other_object(old: Any, new: Any, patch: Any) -> None:
    assert merge_patch(old, new) == patch


def test_a_strategic_patch_deletes_items_by_their_key() -> None:
    schema = {
        "properties": {"items": {"type": "array", "x-kubernetes-patch-merge-key": "name", "items": {"type": "object"}}}
    }
    old, new = {"items": [{"name": "a"}, {"name": "b"}]}, {"items": [{"name": "a", "x": 1}]}
    patch = strategic_patch(Random(3), Catalogue(), schema, old, new)
    assert {"name": "a", "x": 1} in patch["items"]
    assert {"$patch": "delete", "name": "b"} in patch["items"]


def test_queries_are_one_line_of_ascii() -> None:
    for seed in range(200):
        text = query(Random(seed), LIST_PARAMETERS)
        assert text.isascii()
        assert " " not in text


def test_lists_of_cluster_scoped_objects_contain_one() -> None:
    assert of_one_object("?limit=1&fieldSelector=") == "?limit=1&fieldSelector=metadata.name=${name}"
    assert of_one_object("") == "?fieldSelector=metadata.name=${name}"


def test_a_duplicated_key_stands_in_the_text_twice() -> None:
    assert duplicated(Random(1), '{"a": 1}').count('"a"') == 2
    assert duplicated(Random(1), "[]") == "[]"
