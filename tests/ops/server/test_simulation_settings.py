"""The settings of the simulation: what is refused, and Stages of a file beside the built-in ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.simulation.simulated import simulation_of
from kubechronicle.ops.settings.settings import load

STAGE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: NAME}
spec:
  resourceRef: {apiGroup: v1, kind: KIND}
  next: {delete: true}
"""


def names(*flags: str) -> list[str]:
    simulation = simulation_of(load(dict(flag[2:].split("=", 1) for flag in flags)), builtin_registry())
    assert simulation is not None
    return [stage.name for stage in simulation.stages]


def test_nothing_is_simulated_by_default() -> None:
    assert simulation_of(load({}), builtin_registry()) is None


def test_stages_of_a_file_are_added_or_replace_those_of_their_names(tmp_path: Path) -> None:
    built_in = names("--simulated-nodes=0")
    assert built_in == ["node-ready", "pod-running", "pod-of-a-job-succeeds", "pod-goes"]
    file = tmp_path / "stages.yaml"
    file.write_text(
        STAGE.replace("NAME", "mine").replace("KIND", "ConfigMap")
        + "---"
        + STAGE.replace("NAME", "pod-goes").replace("KIND", "Pod")
    )
    assert names("--simulated-nodes=1", f"--simulation-stages={file}") == [*built_in, "mine"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "yaml: "),
        ("kind: Pod", "document 1 is no Stage"),
        (STAGE.replace("KIND", "Nothing").replace("NAME", "mine"), "Stage mine: v1 Nothing is no built-in kind"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text(text)
    with pytest.raises(OperatorError, match=f"^--simulation-stages: {file}: {why}"):
        names("--simulated-nodes=1", f"--simulation-stages={file}")


def test_flags_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="--simulated-nodes: must be at most 1000, got 1001"):
        names("--simulated-nodes=1001")
    file = tmp_path / "stages.yaml"
    file.write_text(STAGE)
    with pytest.raises(OperatorError, match="--simulation-stages: give --simulated-nodes, too"):
        names(f"--simulation-stages={file}")
