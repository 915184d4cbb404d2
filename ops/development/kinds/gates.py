"""Write the feature gates of a release of Kubernetes into api/kinds/MINOR/feature_gates.json.

A Go program (gates_program/) is linked with the release's modules and prints the gates that its kube-apiserver knows:
for each gate its states by version, oldest first, and the gates that it needs. So the data cannot differ from what
the code of that release says.

    "ImageVolume": {"specs": [{"version": "1.31", "stage": "ALPHA", "default": false},
                              {"version": "1.33", "stage": "BETA", "default": false}, …]}

``stage``: ALPHA, BETA, DEPRECATED, or "" for general availability. ``locked``: the gate cannot be set otherwise.
``compatibility``: the state holds only with at least this --min-compatibility-version (KEP-4330).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubechronicle.ops.cluster import programs
from kubechronicle.ops.development.differential import reference

PROGRAM: Final = Path(__file__).parent / "gates_program"
FILE: Final = "feature_gates.json"


def feature_gates(release: str, folder: Path) -> str:
    """Return the text of feature_gates.json of a release such as "v1.36.3".

    ``folder``: where the program is built; later calls for the release are fast. Raises CalledProcessError with Go's
    message if the release does not exist or does not build.
    """
    return text(json.loads(run_linked(PROGRAM, release, folder)))


def run_linked(program: Path, release: str, folder: Path) -> str:
    """Return the output of a program that is linked with the modules of a release. It is built below ``folder``."""
    go = reference.find_go()
    built = folder / f"{program.name.removesuffix('_program')}-{release}"
    built.mkdir(parents=True, exist_ok=True)
    shutil.copy(program / "main.go", built / "main.go")
    if not (built / "go.mod").is_file():
        (built / "go.mod").write_text(programs.kubernetes_module(go, built, release))
        run_go(go, built, "mod", "tidy")
    return run_go(go, built, "run", ".")


def run_go(go: str, folder: Path, *arguments: str) -> str:
    """Run a go command and return its output."""
    process = subprocess.run(
        [go, *arguments], cwd=folder, env=reference.go_environment(), capture_output=True, text=True, check=True,
        timeout=reference.BUILD_TIMEOUT,
    )  # fmt: skip
    return process.stdout


def text(gates: Mapping[str, Any]) -> str:
    """Return the gates as JSON, by name, with one state per line."""
    parts = []
    for name, gate in sorted(gates.items()):
        lines = [f"   {json.dumps(each)}" for each in gate["specs"]]
        needs = f',\n  "needs": {json.dumps(gate["needs"])}' if gate.get("needs") else ""
        parts.append(f' "{name}": {{\n  "specs": [\n' + ",\n".join(lines) + f"\n  ]{needs}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
