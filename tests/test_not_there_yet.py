"""The section "What is not there yet" of the README, compared with the registry and with kube-apiserver v1.37."""

from __future__ import annotations

import re
from pathlib import Path

from kubechronicle.api.features.gates import PROGRAM, gates_of
from kubechronicle.api.registry import runtime_config
from kubechronicle.ops.settings import feature_gates

HERE = Path(__file__).resolve().parent
# All that kube-apiserver v1.37 serves with api/all=true and every feature gate: "VERSION RESOURCE", with subresources.
ALL = {tuple(line.split()) for line in (HERE / "ops/settings/kube_apiserver_resources.txt").read_text().splitlines()}


def section() -> str:
    text = (HERE.parent / "README.md").read_text()
    return text[text.index("## What is not there yet") : text.index("## Develop")]


def test_the_versions_that_are_missing() -> None:
    known = set()
    for rt in runtime_config.known_registry():
        version = f"{rt.group}/{rt.version}" if rt.group else rt.version
        known |= {(version, rt.plural), *((version, f"{rt.plural}/{name}") for name in rt.subresources)}
    named = set(re.findall(r"`([a-z0-9.]+/v1[a-z0-9]+)`", section()))
    assert {version for version, _ in ALL - known} == named
    served = {version for version, _ in known}
    assert not named & served  # a version is served whole


def test_the_gates_that_have_a_switch() -> None:
    page = (HERE.parent / "docs/feature-gates.md").read_text()
    start, end, after = (page.index(f"## {title}") for title in ("Gates with an effect", "Gates without", "Elections"))
    named, without = (set(re.findall(r"`([A-Z]\w+)`", part)) for part in (page[start:end], page[end:after]))
    assert named == feature_gates.WITH_EFFECT
    assert without < gates_of(PROGRAM).keys() - named
    assert "docs/feature-gates.md" in section()
