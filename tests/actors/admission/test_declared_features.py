"""Features that the kubelet of a node must declare for an update of its pod (KEP-5328)."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.actors.admission.pods.updates import features_of_update

LEVEL = "InPlacePodLevelResourcesVerticalScaling"
INIT = "InPlacePodVerticalScalingInitContainers"
VOLUMES = "InPlacePodVerticalScalingMemoryBackedVolumes"
CPU, MORE = ({"resources": {"requests": {"cpu": amount}}} for amount in ("1", "2"))


def memory(limit: str | None, **volume: Any) -> dict[str, Any]:
    directory = {"medium": "Memory"} if limit is None else {"medium": "Memory", "sizeLimit": limit}
    return {"volumes": [{"name": "v", "emptyDir": directory, **volume}]}


@pytest.mark.parametrize(
    ("old", "new", "needed"),
    [
        (CPU, CPU, []),
        (CPU, MORE, [LEVEL]),
        ({"initContainers": [CPU]}, {"initContainers": [MORE]}, [INIT]),
        (
            {"initContainers": [{"restartPolicy": "Always", **CPU}]},
            {"initContainers": [{"restartPolicy": "Always", **MORE}]},
            [],
        ),
        (memory("1Gi"), memory("2Gi"), [VOLUMES]),
        (memory("1Gi"), memory("1024Mi"), []),
        (memory("1Gi"), memory(None), []),
        (memory("1Gi"), memory("2Gi", name="w"), []),
        (memory("1Gi"), {"volumes": []}, []),
        ({**CPU, **memory("1Gi")}, {**MORE, **memory("2Gi")}, [LEVEL, VOLUMES]),
    ],
)
def test_features_of_an_update(old: dict[str, Any], new: dict[str, Any], needed: list[str]) -> None:
    assert features_of_update(new, old) == needed
