"""The recipe of the image: it names the version of the project. tests/clients/image builds and runs it."""

from __future__ import annotations

import re
from pathlib import Path

from kubechronicle.ops.version import VERSION

RECIPE = Path(__file__).resolve().parents[3] / "ops" / "install" / "Containerfile"


def test_the_version_of_the_label() -> None:
    assert re.findall(r"^ARG VERSION=(\S+)$", RECIPE.read_text(), re.MULTILINE) == [VERSION]
