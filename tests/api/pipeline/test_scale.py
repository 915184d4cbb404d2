"""The managers of a Scale and of its workload."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from pipeline_writes import create

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import patches, pipeline, scale
from kubechronicle.api.pipeline.patching import APPLY_YAML
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.strategy.strategy import Outcome, Prepared, WriteContext

MERGE = "application/merge-patch+json"
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "a"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
}
NOW = "2026-01-01T00:00:00Z"


def deployments() -> ResourceType:
    found = builtin_registry().lookup("apps", "v1", "deployments")
    assert found is not None
    return found


def deployment() -> dict[str, Any]:
    made = create("apps/v1/deployments", copy.deepcopy(DEPLOYMENT))
    made["metadata"]["resourceVersion"] = "7"
    return made


def context(manager: str, **more: Any) -> WriteContext:
    return WriteContext(now=NOW, manager=manager, name="a", namespace="shop", **more)


def finished(old: dict[str, Any], new: dict[str, Any], ctx: WriteContext) -> Prepared:
    prepared = pipeline.prepare_update(deployments(), old, new, ctx)
    prepared.object["metadata"].setdefault("resourceVersion", "8")
    return prepared


def put(old: dict[str, Any], manager: str, **meta: Any) -> Prepared:
    wanted = {
        "metadata": {"name": "a", "namespace": "shop", **meta},
        "spec": {"replicas": 2},
        "status": {"replicas": 0},
    }
    new = scale.put_scale(deployments(), old, wanted, manager=manager, now=NOW, dry_run=False)
    return finished(old, new, context(manager, subresource="scale"))


def patch(old: dict[str, Any], manager: str, body: Any, media_type: str = MERGE, **more: Any) -> Prepared:
    ctx = context(manager, **more)
    new, _ = patches.apply_patch(deployments(), copy.deepcopy(old), media_type, orjson.dumps(body), ctx)
    return finished(old, new, ctx)


def patch_scale(old: dict[str, Any], manager: str, body: Any, media_type: str = MERGE, **more: Any) -> Prepared:
    return patch(old, manager, body, media_type, subresource="scale", **more)


def owners(obj: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Return (manager, subresource, fields of spec, has a time) of each entry."""
    return [
        (
            entry["manager"],
            entry.get("subresource", ""),
            " ".join(sorted(name[2:] for name in entry["fieldsV1"]["f:spec"] if name == "f:replicas")) or "others",
            "time" in entry,
        )
        for entry in obj["metadata"]["managedFields"]
    ]


def test_an_unchanged_scale_separates_replicas_from_the_other_fields() -> None:
    first = put(deployment(), "x")
    assert first.outcome is Outcome.STORE
    manager = first.object["metadata"]["managedFields"][0]["manager"]
    assert owners(first.object) == [(manager, "", "replicas", False), (manager, "", "others", True)]


def test_the_next_write_keeps_the_later_of_two_entries_with_one_key() -> None:
    divided = put(deployment(), "x").object
    second = put(divided, "x")
    assert second.outcome is Outcome.STORE
    assert [fields for _, _, fields, _ in owners(second.object)] == ["others"]
    assert put(second.object, "x").outcome is Outcome.UNCHANGED
    plain = patch(put(deployment(), "x").object, "y", {})
    assert (plain.outcome, len(owners(plain.object))) == (Outcome.STORE, 1)


@pytest.mark.parametrize(
    ("media_type", "body", "more"),
    [
        (MERGE, {"spec": {"replicas": 5}}, {}),
        (
            APPLY_YAML,
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 5}},
            {"applies": True, "force": True},
        ),
    ],
)
def test_the_writer_of_a_scale_owns_the_replicas_of_the_workload(
    media_type: str, body: Any, more: dict[str, Any]
) -> None:
    changed = patch_scale(deployment(), "scaler", body, media_type, **more).object
    assert changed["spec"]["replicas"] == 5
    entry = next(each for each in changed["metadata"]["managedFields"] if each["manager"] == "scaler")
    assert (entry["apiVersion"], entry["subresource"], entry["fieldsV1"]) == (
        "apps/v1",
        "scale",
        {"f:spec": {"f:replicas": {}}},
    )
    assert "time" not in entry
    assert [fields for manager, _, fields, _ in owners(changed) if manager != "scaler"] == ["others"]


def test_entries_in_unknown_versions_are_dropped() -> None:
    old = deployment()
    entry = {**old["metadata"]["managedFields"][0], "manager": "old", "apiVersion": "extensions/v1beta1"}
    old["metadata"]["managedFields"].append(entry)
    assert all(manager != "old" for manager, *_ in owners(put(old, "x").object))


@pytest.mark.parametrize(
    ("write", "kind", "stored"),
    [
        (lambda old: put(old, "x", uid="other"), "deployments", True),
        (lambda old: patch_scale(old, "x", {"metadata": {"uid": "other"}}), "deployments/scale", False),
    ],
)
def test_a_uid_is_a_precondition(write: Any, kind: str, stored: bool) -> None:
    with pytest.raises(StatusError) as caught:
        write(deployment())
    assert (caught.value.code, caught.value.body()["details"]["kind"]) == (409, kind)
    assert ("Key: /registry/deployments/shop/a" in caught.value.message) == stored


def test_metadata_of_a_scale_is_not_checked() -> None:
    assert put(deployment(), "x", labels={"a": "é"}).object["spec"]["replicas"] == 2
