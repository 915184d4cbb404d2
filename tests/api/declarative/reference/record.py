"""Writes answers.jsonl: what kube-apiserver's generated validation finds in drawn objects, for test_reference.py.

    python -m tests.api.declarative.reference.record v1.37.2

builds main.go with the Go modules of that release (a minute or two, with Go in the PATH), draws objects of all kinds,
and keeps those that show something new: a kind, and a cause worded in a way that no kept object of the kind has.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubechronicle.api.declarative.enforcement import TagCompiler
from kubechronicle.api.declarative.functions import ALPHA, EVERY_LEVEL
from kubechronicle.api.kinds.reading import Declared, PublishedRelease, release
from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.kinds import modules
from kubechronicle.ops.development.kinds.gates import run_go
from tests.api.declarative.drawing import Drawing, options_of

HERE = Path(__file__).parent
ROUNDS = 60
LARGEST = 2500
OLD_VERSIONS = re.compile(r"v1alpha1$|v1beta|v2beta")


def main() -> None:
    version = sys.argv[1]
    facts = release(".".join(version.lstrip("v").split(".")[:2]))
    requests = list(drawn(facts))
    lines = answers(version, requests)
    seen: set[tuple[str, ...]] = set()
    with (HERE / "answers.jsonl").open("w") as file:
        for request, line in sorted(zip(requests, lines, strict=True), key=lambda pair: len(json.dumps(pair[0]))):
            causes = json.loads(line)
            if causes is not None:
                causes = [cause for cause in causes if cause[3] != ALPHA]
            if causes is None or len(json.dumps(request)) > LARGEST:
                continue
            shown = {(request["kind"], request["version"], cause[0], plain(cause[2]), cause[3]) for cause in causes}
            shown.add((request["kind"], request["version"], "update" if request["old"] else "create"))
            if shown - seen:
                seen |= shown
                kept = {**request, "options": [name for name, on in request["options"].items() if on], "causes": causes}
                file.write(json.dumps(kept, separators=(",", ":"), ensure_ascii=False) + "\n")


def plain(message: str) -> str:
    """Return a message without the values in it."""
    return re.sub(r'"(\\.|[^"])*"|\{.*\}|-?\d+', "…", message)


def drawn(facts: PublishedRelease) -> Iterator[dict[str, Any]]:
    drawing, chance = Drawing(facts, 1), random.Random(2)
    compiler = TagCompiler(facts, EVERY_LEVEL)
    names = options_of(facts)
    for number in range(ROUNDS):
        for declared in kinds(facts, compiler):
            new, old = drawing.object(declared), None
            if number % 2:
                old, new = new, drawing.changed(declared, new)
            yield {
                "group": declared.package.group,
                "version": declared.package.version,
                "kind": declared.name,
                "object": new,
                "old": old,
                "options": {name: chance.random() < 0.5 for name in names},
                "subresource": chance.choice(sorted(compiler.subresources(declared.full_name))),
            }


def kinds(facts: PublishedRelease, compiler: TagCompiler) -> Iterator[Declared]:
    for declared in facts.types():
        is_kind = declared.is_kind and declared.package.is_group_version and "items" not in declared.members
        is_new = not OLD_VERSIONS.search(declared.package.version)
        if is_kind and is_new and compiler.rule(declared.full_name) is not None:
            yield declared


def answers(version: str, requests: list[dict[str, Any]]) -> list[bytes]:
    go, libraries = reference.find_go(), "v0" + version.removeprefix("v1")
    replaced = re.findall(
        r"^\t(k8s\.io/\S+) => \./", (modules.folder(modules.KUBERNETES, version) / "go.mod").read_text(), re.M
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(HERE / "main.go", folder)
        lines = [f"replace {module} => {module} {libraries}" for module in replaced]
        (folder / "go.mod").write_text(
            "\n".join(["module answers", "go 1.26.0", f"require {modules.KUBERNETES} {version}", *lines])
        )
        run_go(go, folder, "mod", "tidy")
        run_go(go, folder, "build", "-o", "answers", ".")
        sent = "\n".join(map(json.dumps, requests)).encode()
        return subprocess.run([folder / "answers"], input=sent, stdout=subprocess.PIPE, check=True).stdout.splitlines()


if __name__ == "__main__":
    main()
