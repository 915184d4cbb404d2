"""The script of `diff -o patch` and `branch diff -o patch`: owners that it creates get their dependents."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

from kubechronicle.ops.client.comparisons import patch_script
from kubechronicle.ops.client.kinds import Kind
from kubechronicle.ops.client.states import ClusterState

CONFIGMAPS = Kind("", "v1", "configmaps", "configmap", "ConfigMap", namespaced=True, verbs=frozenset())
# Answers with a uid that tells the object, and writes what the others get to the file $SENT.
STAND_IN = """#!/bin/sh
if [ "$1" = get ]; then printf 'now-%s' "${2#*/}"; else { echo "$@"; cat; } >>"$SENT"; fi
"""


def configmap(name: str, uid: str, *owners: tuple[str, str], **data: str) -> dict[str, Any]:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": its} for owner, its in owners]
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": "1"}
    if references:
        metadata["ownerReferences"] = references
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def state(*objects: dict[str, Any]) -> ClusterState:
    found = ClusterState()
    for obj in objects:
        found.add(CONFIGMAPS, obj)
    return found


def sent(old: ClusterState, new: ClusterState, tmp_path: Path) -> tuple[dict[str, Any], str]:
    """Run the script, and return the bodies by the words of their commands, and the script."""
    program, file = tmp_path / "kubectl", tmp_path / "sent"
    program.write_text(STAND_IN)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    script = "\n".join(patch_script(old, new, flags=(), title="a test", secrets=False)) + "\n"
    environment = os.environ | {"KUBECTL": str(program), "SENT": str(file)}
    subprocess.run(["sh"], input=script, text=True, env=environment, check=True, stdin=None)
    lines = file.read_text().splitlines()
    return {
        words if words.startswith("patch") else json.loads(body)["metadata"]["name"]: json.loads(body)
        for words, body in zip(lines[::2], lines[1::2], strict=True)
    }, script


def owners_of(obj: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["name"], each["uid"]) for each in obj["metadata"].get("ownerReferences", ())]


def test_dependents_get_the_uids_of_owners_that_the_script_creates(tmp_path: Path) -> None:
    old = state(configmap("there", "uid-there"), configmap("child", "uid-child", color="red"))
    new = state(
        configmap("a-dependent", "a", ("new", "in-branch"), ("there", "in-branch-too"), ("second", "in-branch")),
        configmap("new", "in-branch"),
        configmap("second", "in-branch"),
        configmap("there", "in-branch-too"),
        configmap("child", "other", ("new", "in-branch"), color="blue"),
        configmap("lost", "lost", ("nowhere", "in-branch")),
    )
    bodies, script = sent(old, new, tmp_path)
    found = owners_of(bodies["a-dependent"])
    assert found == [("new", "now-new"), ("there", "uid-there"), ("second", "now-second")]
    (changes,) = (body for words, body in bodies.items() if words.startswith("patch"))
    (added,) = (each["value"] for each in changes if each["path"] == "/metadata/ownerReferences")
    assert [each["uid"] for each in added] == ["now-new"]
    assert owners_of(bodies["lost"]) == []
    assert "# without its owner ConfigMap/nowhere, which is gone" in script
    assert "in-branch" not in script


def test_an_object_made_again_with_its_owner_is_no_difference() -> None:
    old = state(configmap("o", "1"), configmap("c", "2", ("o", "1")))
    new = state(configmap("o", "8"), configmap("c", "9", ("o", "8")))
    lines = list(patch_script(old, new, flags=(), title="a test", secrets=False))
    assert [line for line in lines if not line.startswith(("#", "set -e"))] == []
