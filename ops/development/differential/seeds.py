"""Valid objects of every kind: samples, the bodies of recorded cases, and objects generated from the schemas."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.nodes import make

SAMPLES = Path(__file__).with_name("samples.yaml")
LARGEST = 20_000  # bytes of a recorded body that is used


class Seeds:
    """Objects to start from, by group-version and kind."""

    def __init__(self, catalogue: Catalogue, recorded: Path | None = None) -> None:
        self.catalogue = catalogue
        self.objects: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for document in yaml.safe_load_all(SAMPLES.read_text()):
            self.samples.setdefault((document["apiVersion"], document["kind"]), []).append(document)
        if recorded is not None:
            seen = set()
            for body in bodies(recorded):
                text = json.dumps(body, sort_keys=True)
                if text not in seen and len(text) < LARGEST:
                    seen.add(text)
                    self.objects.setdefault((body["apiVersion"], body["kind"]), []).append(body)

    def choose(self, rng: Random, resource: Resource) -> dict[str, Any]:
        """Return a fresh object of a resource: a sample, a recorded body, or a generated object."""
        key = (resource.group_version, resource.kind)
        samples, recorded = self.samples.get(key, []), self.objects.get(key, [])
        chance = rng.random()
        if samples and (chance < 0.5 or not recorded):
            chosen = copy.deepcopy(rng.choice(samples))
        elif recorded and chance < 0.95:
            chosen = copy.deepcopy(rng.choice(recorded))
        else:
            chosen = {**make(self.catalogue, rng, self.catalogue.of(resource), "", 0)}
            chosen.pop("metadata", None)
        return {"apiVersion": resource.group_version, "kind": resource.kind, **chosen}


def bodies(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every request body in the recorded cases that is an object."""
    for path in sorted((folder / "cases").glob("*.yaml")):
        for case in yaml.load(path.read_text(), Loader=yaml.CSafeLoader):
            for step in case.get("steps", ()):
                body = step.get("body") if isinstance(step, dict) else None
                if (
                    isinstance(body, dict)
                    and isinstance(body.get("kind"), str)
                    and isinstance(body.get("apiVersion"), str)
                ):
                    yield body
