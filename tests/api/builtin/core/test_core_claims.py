"""Data sources of PersistentVolumeClaims."""

from __future__ import annotations

from pipeline_writes import Object, create, rejections_of, update

PATH = "/v1/persistentvolumeclaims"
CLAIM: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CUSTOM = {"apiGroup": "g.example.com", "kind": "Backup", "name": "b"}
SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}


def claim(**members: Object) -> Object:
    return {"spec": {**CLAIM, **members}}


def test_a_reference_of_any_kind_is_copied() -> None:
    stored = create(PATH, claim(dataSourceRef=CUSTOM))
    assert stored["spec"]["dataSource"] == stored["spec"]["dataSourceRef"] == CUSTOM
    assert create(PATH, claim(dataSource=SNAPSHOT))["spec"]["dataSourceRef"] == SNAPSHOT


def test_the_copy_is_validated() -> None:
    found = rejections_of(PATH, claim(dataSourceRef={"kind": "Backup", "name": "b"}))
    assert [cause.partition(":")[0] for cause in found] == ["spec.dataSource", "spec.dataSourceRef"]


def test_a_null_group_of_the_old_source_is_none() -> None:
    stored = create(PATH, claim(dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"}))
    assert stored["spec"]["dataSource"]["apiGroup"] is None
    changed = {"dataSource": None, "dataSourceRef": {**CUSTOM, "apiGroup": "True"}}
    found = rejections_of(PATH, stored, {"spec": changed})
    groups = ["spec.dataSource.apiGroup", "spec.dataSourceRef.apiGroup"]
    assert [cause.partition(":")[0] for cause in found] == [*groups, "spec"]


def test_other_kinds_in_the_old_field_and_other_namespaces_are_dropped() -> None:
    assert "dataSource" not in create(PATH, claim(dataSource=CUSTOM))["spec"]
    elsewhere = create(PATH, claim(dataSourceRef={**SNAPSHOT, "namespace": "n"}))["spec"]
    assert not {"dataSource", "dataSourceRef"} & elsewhere.keys()


def test_an_update_without_the_new_field_keeps_the_source() -> None:
    stored = create(PATH, claim(dataSourceRef=CUSTOM))
    changed = update(PATH, stored, {"spec": {"dataSourceRef": None}}).object
    assert changed["spec"]["dataSourceRef"] == CUSTOM
    older = create(PATH, claim(dataSourceRef=CUSTOM))
    del older["spec"]["dataSourceRef"]
    assert update(PATH, older, {"metadata": {"labels": {"a": "b"}}}).object["spec"]["dataSourceRef"] == CUSTOM
