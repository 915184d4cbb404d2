"""The overlay over Kubernetes' sources, and the names of packages."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.kinds import RELEASE
from kubechronicle.ops.development.integration import programs, running, sources
from kubechronicle.ops.development.integration.databases import Databases
from kubechronicle.ops.development.integration.programs import Package
from kubechronicle.ops.development.integration.running import Site

GO = "package x\n\nfunc StartEtcd(a int) {\n\tStartEtcd(a)\n}\n\nfunc StartEtcdToo() {}\n"


def test_only_the_first_line_of_a_function_is_renamed() -> None:
    renamed = sources.with_renamed(GO, ["StartEtcd"])
    assert renamed == GO.replace("func StartEtcd(", "func startEtcdInProcess(")
    with pytest.raises(ValueError, match="0 functions Other"):
        sources.with_renamed(GO, ["Other"])


def test_each_renamed_function_has_a_successor_that_calls_it() -> None:
    starters = {folder: (sources.GO_FILES / "starters" / name).read_text() for folder, name in sources.STARTERS.items()}
    for path, names in sources.RENAMED.items():
        text = starters[str(Path(path).parent)]
        for name in names:
            assert re.search(rf"^func {name}\(", text, re.M)
            if name != "StartTestServerOrDie":  # it calls its sibling
                assert f"{name[0].lower()}{name[1:]}InProcess(" in text


def test_modules_of_the_release_replace_folders() -> None:
    text = "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/apiextensions-apiserver => ./staging/src/x\n)"
    version = RELEASE.replace("v1", "v0", 1)
    assert f"k8s.io/api => k8s.io/api {version}\n" in sources.with_replaced_modules(text)
    assert f"k8s.io/apiextensions-apiserver => {sources.EXTENSIONS}\n" in sources.with_replaced_modules(text)


@pytest.mark.parametrize(
    ("name", "path", "imported", "program"),
    [
        ("apiserver/cel", "test/integration/apiserver/cel", "./test/integration/apiserver/cel", "cel.test"),
        ("crd", "test/integration", "k8s.io/apiextensions-apiserver/test/integration", "integration.test"),
        ("crd/conversion", "test/integration/conversion", "k8s.io/apiextensions-apiserver/test/integration/conversion",
         "conversion.test"),
    ],
)  # fmt: skip
def test_names_of_packages(name: str, path: str, imported: str, program: str) -> None:
    package = Package(name)
    assert (package.path, package.import_path, package.program.name) == (path, imported, program)


def test_programs_of_one_name_are_compiled_apart() -> None:
    names = ["auth", "crd", "crd/auth", "service/auth"]
    assert [[each.name for each in batch] for batch in programs.batches([Package(name) for name in names])] == [
        ["auth", "crd"],
        ["crd/auth"],
        ["service/auth"],
    ]


def test_the_plan_has_the_fields_that_the_overlay_reads(tmp_path: Any) -> None:
    where = {"PGUSER": "u", "PGHOST": "/h", "PGPORT": "1"}
    site = Site(databases=Databases("psql", where), program="kubechronicle", flags=("v",))
    made = running.plan(site, tmp_path, "kc_1_")
    text = (sources.GO_FILES / "chronicle" / "plan.go").read_text()
    struct = re.search(r"type Plan struct \{\n(.*?)\n\}", text, re.S)
    assert struct is not None
    assert [line.split()[0] for line in struct[1].splitlines()] == list(json.loads(json.dumps(made)))
    assert made["Database"] == "postgresql://u@/{}?host=/h&port=1"
    assert {each.name for each in fields(Site)} == {"databases", "program", "flags", "etcd"}
